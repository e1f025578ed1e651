"""Clients that move between workers, without sockets: the test decides what happens when."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.packets.encoder import encode_acknowledgement, encode_publish
from gateway.mqtt.packets.packets import PacketType, ReasonCode
from gateway.mqtt.requests import AnswerLate, RelayUnavailable
from gateway.mqtt.sessions.claims import SessionBusy, SessionClaims
from gateway.mqtt.sessions.link import CLOSED
from gateway.mqtt.workers.worker_hub import WorkerHub
from gateway.mqtt.workers.worker_peers import WorkerPeers
from tests.gateway.mqtt.in_memory import User, Wire, new_router, split_packets
from tests.gateway.records import StoredRecord

ADA = User("ada")
TOPIC = "devices/ada/phone/note"


class Answer:
    """The answer to a worker's request; one coroutine, driven by hand, awaits it."""

    def __init__(self, late: Callable[[Any], object]) -> None:
        self.value: Any = None
        self.late = late

    def __await__(self) -> Generator[Answer, None, Any]:
        yield self
        return self.value


class Arrival:
    """A client's CONNECT at a worker, until it is accepted or refused."""

    def __init__(self, worker: ModelWorker, name: str, clean: bool) -> None:
        self.wire = Wire(worker.router, worker.model.now)
        self.worker = worker
        flags = 2 if clean else 0
        body = b"\0\4MQTT\4" + bytes([flags, 0, 0, 0, len(name)]) + name.encode()
        (self._packet,) = self.wire.send(bytes([PacketType.CONNECT << 4, len(body)]) + body)
        self._claim = worker.claims.claim(("ada", name), clean)
        #: True if it is the first connection since its client has ended the session.
        self.is_first = False

    def go_on(self, error: Exception | None = None) -> None:
        """Continue with the answer, or with the error if there is none."""
        connection = self.wire.connection
        self.worker.model.waiting.discard(self)
        try:
            if error is None:
                self._claim.send(None)
            else:
                self._claim.throw(error)
        except StopIteration:
            connection.accept(self._packet, ADA, self.worker.model.now, assigned_client_id="")
        except SessionBusy:
            connection.refuse(ReasonCode.SERVER_BUSY, "busy")
        else:
            self.worker.arriving[self.worker.number] = self
            self.worker.model.waiting.add(self)
            return


class ModelWorker:
    """A worker: its real parts, and queues in place of its sockets."""

    def __init__(self, model: MovingClients, seat: Seat) -> None:
        self.model = model
        self.seat = seat
        self.number = 0
        self.answers: dict[int, Answer] = {}
        self.arriving: dict[int, Arrival] = {}
        self.scheduled: list[Callable[[], None]] = []
        self.to_crossing: deque[tuple[Any, ...]] = deque()
        self.from_crossing: deque[tuple[Any, ...]] = deque()
        self.publishes: deque[tuple[Wire, Any]] = deque()  # without an answer of the log
        self.journal = Journal(
            seat.worker_name(),
            self._append,
            model.wall_ms,
            model.clock,
            self.scheduled.append,
            shared=True,
            seat=seat,
        )
        self.journal.on_records(model.records)
        self.read = len(model.records)
        self.router = new_router()
        self.router.keep(self.journal, 0.0)
        self.journal.writes_all = False
        self.claims = SessionClaims(self.router, self.journal, self._request, lambda: model.now)
        self.neighbours = WorkerPeers(
            self.router,
            self.journal,
            self,
            clock=lambda: model.now,
            schedule=self.scheduled.append,
            wake=lambda: None,
            in_flight=lambda _device, _fix_id: None,
        )
        self.worker_hub = self.Inbox(self)
        self.neighbours.opened()

    # The channel of `WorkerPeers`.
    is_open = True

    def send(self, *frame: Any) -> None:
        self.to_crossing.append(frame)

    class Inbox:
        """The connection from the worker hub to the worker."""

        def __init__(self, worker: ModelWorker) -> None:
            self._queue = worker.from_crossing

        def send(self, *frame: Any) -> None:
            self._queue.append(frame)

    def _append(self, key: bytes, value: bytes | None) -> None:
        self.model.records.append(StoredRecord(key, value))

    def _request(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object]
    ) -> Answer:
        self.number += 1
        self.answers[self.number] = Answer(late)
        self.send(kind, self.number, *arguments)
        return self.answers[self.number]

    # The next event of the worker.

    def do_scheduled(self) -> bool:
        scheduled, self.scheduled[:] = self.scheduled[:], []
        for callback in scheduled:
            callback()
        return bool(scheduled)

    def tell_crossing(self) -> bool:
        if not self.to_crossing:
            return False
        kind, *arguments = _crossed(self.to_crossing.popleft())
        self.model.worker_hub.on_frame(self.worker_hub, kind, arguments)
        return True

    def hear_crossing(self) -> bool:
        if not self.from_crossing:
            return False
        kind, *arguments = _crossed(self.from_crossing.popleft())
        if kind == "answer":
            number, value = arguments
            answer, arrival = self.answers.pop(number), self.arriving.pop(number, None)
            if arrival is None:
                answer.late(value)
            else:
                answer.value = value
                # As a future resumes its waiter: after everything that arrived at the same time.
                self.scheduled.append(arrival.go_on)
        else:
            self.neighbours.on_frame(kind, arguments)
        return True

    def lose_crossing(self) -> None:
        """Break the connection to the worker hub with everything in flight, and reconnect."""
        self.to_crossing.clear()
        self.from_crossing.clear()
        arriving, self.arriving = self.arriving, {}
        answers, self.answers = self.answers, {}
        for number, answer in answers.items():
            if number in arriving:
                arriving[number].go_on(RelayUnavailable())
            else:
                answer.late(None)
        self.neighbours.opened()

    def wait_no_longer(self) -> None:
        """Let the oldest request time out."""
        number = min(self.arriving)
        self.arriving.pop(number).go_on(AnswerLate())

    def read_log(self) -> bool:
        if self.read == len(self.model.records):
            return False
        self.read += 1
        self.journal.on_records(self.model.records[self.read - 1 : self.read])
        return True

    def log_answers(self, fails: bool = False) -> bool:
        if not self.publishes:
            return False
        wire, packet = self.publishes.popleft()
        if fails:
            wire.connection.fail(packet, self.model.now)
        else:
            self.model.stored[bytes(packet.payload)] += 1
            wire.connection.acknowledge(packet, 0, self.model.now)
        return True


def _crossed(frame: tuple[Any, ...]) -> list[Any]:
    """Return a frame as it arrives at the other end."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=list[Any])


class Client:
    """A device: what its MQTT library remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrival: Arrival | None = None
        self.connected = False
        self.clean = False
        self.kept = False  # whether the server has a session that it must not lose
        self.discarded = False  # whether it has ended one that no connection may find again
        #: Payloads of publishes without PUBREC, by packet identifier; identifiers with PUBREC but
        #: without PUBCOMP.
        self.pending: dict[int, bytes] = {}
        self.released: set[int] = set()

    def forget(self) -> None:
        """Forget the session and what is in flight."""
        self.pending.clear()
        self.released.clear()
        self.kept = False


class MovingClients:
    """Three workers, some clients, and a log and a worker hub that deliver late."""

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.looked = 0
        self.set_back = 0
        self.records: list[StoredRecord] = []
        self.stored: Counter[bytes] = Counter()
        self.worker_hub = WorkerHub(lambda _s, callback: callback(), lambda *_named: False)
        self.workers: list[ModelWorker] = []
        self.clients = [Client(name) for name in names or ("phone",)]
        self.left: list[tuple[ModelWorker, Wire]] = []
        self.waiting: set[Arrival] = set()  # that wait for an answer
        self.last_id = 0
        for number in (1, 2, 3):
            self._start(Seat(number, 3))
        self.quiet()

    def wall_ms(self) -> int:
        """Return the wall clock's time (ms); each call advances it."""
        self.looked += 1
        return 1_000_000 + self.looked - self.set_back

    def clock(self) -> float:
        """Return the monotonic clock's time (s); each call advances it, too."""
        self.looked += 1
        return self.now + self.looked / 1000

    def _start(self, seat: Seat) -> None:
        self.workers.append(ModelWorker(self, seat))

    # --- clients --------------------------------------------------------------------------------

    def _connect(self, client: Client, worker: ModelWorker, clean: bool) -> None:
        if clean or client.clean:
            # A clean session ends with its connection, for the client too (MQTT 3.1.1, 3.1.2.4).
            client.forget()
        client.clean = clean
        client.connected = False
        client.arrival = Arrival(worker, client.name, clean)
        client.arrival.is_first, client.discarded = client.discarded and not clean, False
        client.arrival.go_on()

    def _read(self, client: Client) -> bool:
        """Handle what the server has sent; repeat unanswered publishes on a new connection.

        Returns whether there was something.
        """
        if client.arrival is None:
            return False
        wire = client.arrival.wire
        received = split_packets(wire.received())
        for first, body in received:
            kind, packet_id = first >> 4, int.from_bytes(body[:2], "big")
            if kind == PacketType.CONNACK:
                client.connected = body[1] == 0
                if client.connected:
                    self._let_in(client, present=bool(body[0]))
            elif kind == PacketType.PUBREC:
                if client.pending.pop(packet_id, None) is not None:
                    client.released.add(packet_id)
                self._send(client, encode_acknowledgement(PacketType.PUBREL, 4, packet_id))
            elif kind == PacketType.PUBCOMP:
                client.released.discard(packet_id)
        if wire.connection.state == CLOSED:
            self._leave(client)
        return bool(received)

    def _let_in(self, client: Client, present: bool) -> None:
        assert present or not client.kept, "a session was lost"
        assert client.arrival is not None
        assert not (present and client.arrival.is_first), "a session came back that was over"
        if not present:
            client.forget()
        client.kept = not client.clean
        # Of two connections on their way, the older may be accepted after the newer.
        client.discarded = client.clean and not any(
            each.worker in self.workers for each in self.waiting
        )
        for packet_id, payload in list(client.pending.items()):
            self._publish(client, packet_id, payload, dup=True)
        for packet_id in list(client.released):
            self._send(client, encode_acknowledgement(PacketType.PUBREL, 4, packet_id))

    def _publish(self, client: Client, packet_id: int, payload: bytes, dup: bool) -> None:
        self._send(client, encode_publish(4, TOPIC, payload, 2, False, dup, packet_id, None))

    def _send(self, client: Client, data: bytes) -> None:
        assert client.arrival is not None
        wire, worker = client.arrival.wire, client.arrival.worker
        if wire.connection.state != CLOSED:
            worker.publishes.extend((wire, each) for each in wire.send(data))

    def _leave(self, client: Client) -> None:
        assert client.arrival is not None
        if client.arrival.worker in self.workers:
            self.left.append((client.arrival.worker, client.arrival.wire))
        client.arrival = None
        client.connected = False

    def come(self, name: int, number: int, clean: bool = False) -> None:
        """Open a connection of a client, whatever has become of the previous one."""
        client = self.clients[name]
        if client.arrival is not None:
            self._leave(client)
        self._connect(client, self.workers[number], clean)

    def take(self, name: int) -> None:
        self._read(self.clients[name])

    def publish(self, name: int) -> None:
        client = self.clients[name]
        if client.connected:
            self.last_id += 1
            payload = b"%d" % self.last_id
            client.pending[self.last_id] = payload
            self._publish(client, self.last_id, payload, dup=False)

    def go(self, name: int) -> None:
        """Disconnect a client; its worker does not notice it yet."""
        if self.clients[name].arrival is not None:
            self._leave(self.clients[name])

    def notice(self, which: int = 0) -> None:
        """Have a worker notice that a connection is over."""
        _, wire = self.left.pop(which)
        wire.lose()

    # --- workers --------------------------------------------------------------------------------

    def wait_no_longer(self, number: int) -> None:
        if self.workers[number].arriving:
            self.now += 5.0
            self.workers[number].wait_no_longer()

    def set_clock_back(self, back: int) -> None:
        """Set the wall clock of the machine back by some ms."""
        self.set_back += back

    def cross(self) -> None:
        """Deliver all frames and packets, but nothing of the log."""
        self._move(by_log=False)

    def start_crossing_again(self) -> None:
        """Replace the worker hub by a new one, which knows nothing."""
        self.worker_hub = WorkerHub(lambda _s, callback: callback(), lambda *_named: False)
        for client in self.clients:
            client.discarded = False  # no worker knows its place before the log tells
        for worker in self.workers:
            worker.lose_crossing()

    def die(self, number: int) -> None:
        """Kill a worker, and start another one in its seat."""
        dead = self.workers.pop(number)
        while dead.tell_crossing():
            pass
        self.worker_hub.leave(dead.worker_hub)
        self.left = [each for each in self.left if each[0] is not dead]
        for client in self.clients:
            if client.arrival is not None and client.arrival.worker is dead:
                client.arrival, client.connected = None, False
            client.forget()  # what only the dead worker knew is lost
            client.discarded = False
        self._start(dead.seat)
        # It listens once it has heard the clock of the others.
        self.workers[-1].tell_crossing()
        while not self.workers[-1].neighbours.in_pace.is_set():
            assert self.workers[-1].hear_crossing()

    # --- quiet ----------------------------------------------------------------------------------

    def quiet(self) -> None:
        """Deliver everything that is in flight."""
        while self.left:
            self.left.pop(0)[1].lose()
        self._move(by_log=True)

    def _move(self, by_log: bool) -> None:
        moved = True
        while moved:
            moved = False
            for client in self.clients:
                moved |= self._read(client)
            for worker in self.workers:
                steps = [worker.do_scheduled, worker.tell_crossing, worker.hear_crossing]
                if by_log:
                    steps += [worker.read_log, worker.log_answers]
                for step in steps:
                    while step():
                        moved = True

    def check(self) -> None:
        assert set(self.stored.values()) <= {1}, "a message was stored twice"
        for worker in self.workers:
            assert not worker.arriving, "a claim waits for ever"
            assert not worker.router.claiming
        for client in self.clients:
            assert len(self.having(client)) <= 1, "two workers have a session"

    def having(self, client: Client) -> list[int]:
        """Return the numbers of the workers that have the session of a client."""
        key = ("ada", client.name)
        return [n for n, each in enumerate(self.workers) if key in each.router.sessions]

    def come_everywhere(self) -> None:
        """Check that each client can connect at each worker, and gets its answers."""
        self.quiet()
        self.check()
        for name, client in enumerate(self.clients):
            for number in range(len(self.workers)):
                self.come(name, number, client.clean)
                self.quiet()
                assert client.connected
                assert not client.pending
                assert not client.released
                self.check()
