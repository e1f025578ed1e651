"""Clients that move between workers, without sockets: the test says who goes on when."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.packets.codec import encode_acknowledgement, encode_publish
from gateway.mqtt.packets.packets import PacketType, ReasonCode
from gateway.mqtt.requests import AnswerLate, RelayUnavailable
from gateway.mqtt.sessions.claims import SessionBusy, SessionClaims
from gateway.mqtt.sessions.session import CLOSED
from gateway.mqtt.workers.neighbours import Neighbours
from gateway.mqtt.workers.worker_hub import WorkerHub
from tests.gateway.mqtt.in_memory import User, Wire, new_router, split_packets
from tests.gateway.records import StoredRecord

ADA = User("ada")
TOPIC = "devices/ada/phone/note"


class Answer:
    """What a worker asks for, to be awaited by one coroutine that is driven by hand."""

    def __init__(self, late: Callable[[Any], object]) -> None:
        self.value: Any = None
        self.late = late

    def __await__(self) -> Generator[Answer, None, Any]:
        yield self
        return self.value


class Arrival:
    """A client that is on its way to a worker, until it is let in or turned away."""

    def __init__(self, worker: ModelWorker, name: str, clean: bool) -> None:
        self.wire = Wire(worker.router, worker.model.now)
        self.worker = worker
        flags = 2 if clean else 0
        body = b"\0\4MQTT\4" + bytes([flags, 0, 0, 0, len(name)]) + name.encode()
        (self._packet,) = self.wire.send(bytes([PacketType.CONNECT << 4, len(body)]) + body)
        self._claim = worker.claims.claim(("ada", name), clean)
        #: Since its client has ended the session before.
        self.is_first = False

    def go_on(self, error: Exception | None = None) -> None:
        """The answer is there, or none will come."""
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
    """One worker: what is real of it, and queues in place of its sockets."""

    def __init__(self, model: MovingClients, seat: Seat) -> None:
        self.model = model
        self.seat = seat
        self.number = 0
        self.answers: dict[int, Answer] = {}
        self.arriving: dict[int, Arrival] = {}
        self.scheduled: list[Callable[[], None]] = []
        self.to_crossing: deque[tuple[Any, ...]] = deque()
        self.from_crossing: deque[tuple[Any, ...]] = deque()
        self.publishes: deque[tuple[Wire, Any]] = deque()  # that the log has not answered
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
        self.neighbours = Neighbours(
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

    # As a channel of neighbours.
    is_open = True

    def send(self, *frame: Any) -> None:
        self.to_crossing.append(frame)

    class Inbox:
        """The way from the worker hub."""

        def __init__(self, worker: ModelWorker) -> None:
            self._queue = worker.from_crossing

        def send(self, *frame: Any) -> None:
            self._queue.append(frame)

    def _append(self, key: bytes, value: bytes | None) -> None:
        self.model.records.append(StoredRecord(key, value))

    def _request(self, kind: str, *arguments: Any, late: Callable[[Any], object]) -> Answer:
        self.number += 1
        self.answers[self.number] = Answer(late)
        self.send(kind, self.number, *arguments)
        return self.answers[self.number]

    # What happens next to it.

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
                # As a future has its waiter go on: after what has arrived with it.
                self.scheduled.append(arrival.go_on)
        else:
            self.neighbours.on_frame(kind, arguments)
        return True

    def lose_crossing(self) -> None:
        """The way to the others is lost, with all that was on it, and there again."""
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
        """The first answer that is waited for has not come in time."""
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
    """What arrives of a frame."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=list[Any])


class Client:
    """One device: what its MQTT library remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arrival: Arrival | None = None
        self.connected = False
        self.clean = False
        self.kept = False  # the server has a session that it must not forget
        self.discarded = False  # it has ended one, and no connection may find it again
        #: Packet identifiers and payloads: not answered by PUBREC; answered, and not by PUBCOMP.
        self.pending: dict[int, bytes] = {}
        self.released: set[int] = set()

    def forget(self) -> None:
        """What was under way is over for this client."""
        self.pending.clear()
        self.released.clear()
        self.kept = False


class MovingClients:
    """Three workers, some clients, and a log and a worker hub that everybody hears late."""

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
        self.waiting: set[Arrival] = set()  # for an answer
        self.last_id = 0
        for number in (1, 2, 3):
            self._start(Seat(number, 3))
        self.quiet()

    def wall_ms(self) -> int:
        """The wall clock: it goes on whenever somebody looks."""
        self.looked += 1
        return 1_000_000 + self.looked - self.set_back

    def clock(self) -> float:
        """The monotonic clock, which does so too."""
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
        """Take what the server has sent; repeat what it has not answered on a new connection.

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
        # Of two that are on their way the older may be let in after the newer.
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
        """A client opens a connection, whatever has become of the one before."""
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
        """The client is gone, which its worker does not know yet."""
        if self.clients[name].arrival is not None:
            self._leave(self.clients[name])

    def notice(self, which: int = 0) -> None:
        """A worker sees that a connection is over."""
        _, wire = self.left.pop(which)
        wire.lose()

    # --- workers --------------------------------------------------------------------------------

    def wait_no_longer(self, number: int) -> None:
        if self.workers[number].arriving:
            self.now += 5.0
            self.workers[number].wait_no_longer()

    def set_clock_back(self, back: int) -> None:
        """Somebody sets the wall clock of the machine, by ms."""
        self.set_back += back

    def cross(self) -> None:
        """What workers and clients say to each other arrives, before the log says anything."""
        self._move(by_log=False)

    def start_crossing_again(self) -> None:
        """The worker in which the others meet is another one, which knows nothing."""
        self.worker_hub = WorkerHub(lambda _s, callback: callback(), lambda *_named: False)
        for client in self.clients:
            client.discarded = False  # nobody knows where, before the log tells
        for worker in self.workers:
            worker.lose_crossing()

    def die(self, number: int) -> None:
        """A worker is killed, and another one started in its place."""
        dead = self.workers.pop(number)
        while dead.tell_crossing():
            pass
        self.worker_hub.leave(dead.worker_hub)
        self.left = [each for each in self.left if each[0] is not dead]
        for client in self.clients:
            if client.arrival is not None and client.arrival.worker is dead:
                client.arrival, client.connected = None, False
            client.forget()  # what only the dead one knew is over
            client.discarded = False
        self._start(dead.seat)

    # --- quiet ----------------------------------------------------------------------------------

    def quiet(self) -> None:
        """Everything that is under way arrives."""
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
        """The workers that have the session of a client."""
        key = ("ada", client.name)
        return [n for n, each in enumerate(self.workers) if key in each.router.sessions]

    def come_everywhere(self) -> None:
        """Every client gets in at every worker, and what it repeats is answered."""
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
