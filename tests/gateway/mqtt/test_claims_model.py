"""Any history of clients that move between workers: nothing is doubled, lost, or in two places."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gateway.mqtt.claims import SessionBusy, SessionClaims
from gateway.mqtt.codec import encode_acknowledgement, encode_publish
from gateway.mqtt.crossing import Crossing
from gateway.mqtt.journal import Journal
from gateway.mqtt.neighbours import Neighbours
from gateway.mqtt.packets import PacketType, ReasonCode
from gateway.mqtt.requests import AnswerLate
from gateway.mqtt.session import CLOSED
from tests.gateway.mqtt.in_memory import User, Wire, new_router, split_packets
from tests.gateway.records import StoredRecord

ADA = User("ada")
CLIENTS = ("phone",)
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

    def go_on(self, error: Exception | None = None) -> None:
        """The answer is there, or none will come."""
        connection = self.wire.connection
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
            return


class ModelWorker:
    """One worker: what is real of it, and queues in place of its sockets."""

    def __init__(self, model: ClientsThatMove, name: str) -> None:
        self.model = model
        self.number = 0
        self.answers: dict[int, Answer] = {}
        self.arriving: dict[int, Arrival] = {}
        self.scheduled: list[Callable[[], None]] = []
        self.to_crossing: deque[tuple[Any, ...]] = deque()
        self.from_crossing: deque[tuple[Any, ...]] = deque()
        self.publishes: deque[tuple[Wire, Any]] = deque()  # that the log has not answered
        self.journal = Journal(
            name, self._append, model.wall_ms, lambda: model.now, self.scheduled.append, shared=True
        )
        self.journal.on_records(model.records)
        self.read = len(model.records)
        self.router = new_router()
        self.router.keep(self.journal, 0.0)
        self.journal.writes_all = False
        self.claims = SessionClaims(self.router, self.journal, self._request)
        self.neighbours = Neighbours(
            self.router,
            self,
            name,
            clock=lambda: model.now,
            schedule=self.scheduled.append,
            wake=lambda: None,
            in_flight=lambda _device, _fix_id: None,
        )
        self.crossing = self.Inbox(self)
        self.neighbours.opened()

    # As a channel of neighbours.
    is_open = True

    def send(self, *frame: Any) -> None:
        self.to_crossing.append(frame)

    class Inbox:
        """The way from the crossing."""

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
        self.model.crossing.on_frame(self.crossing, kind, arguments)
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
                arrival.go_on()
        else:
            self.neighbours.on_frame(kind, arguments)
        return True

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
        #: Packet identifiers and payloads: not answered by PUBREC; answered, and not by PUBCOMP.
        self.pending: dict[int, bytes] = {}
        self.released: set[int] = set()

    def forget(self) -> None:
        """What was under way is over for this client."""
        self.pending.clear()
        self.released.clear()
        self.kept = False


class ClientsThatMove(RuleBasedStateMachine):
    """Three workers, two clients, and a log and a crossing that everybody hears late."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.looked = 0
        self.records: list[StoredRecord] = []
        self.stored: Counter[bytes] = Counter()
        self.crossing = Crossing(lambda _s, callback: callback(), lambda *_named: False)
        self.started = 0
        self.workers: list[ModelWorker] = []
        self.clients = [Client(name) for name in CLIENTS]
        self.left: list[tuple[ModelWorker, Wire]] = []
        self.last_id = 0
        for _ in range(3):
            self._start()
        self._quiet()

    def wall_ms(self) -> int:
        """The wall clock: it goes on whenever somebody looks."""
        self.looked += 1
        return 1_000 + self.looked

    def _start(self) -> None:
        self.started += 1
        self.workers.append(ModelWorker(self, f"worker-{self.started}"))

    # --- clients --------------------------------------------------------------------------------

    def _connect(self, client: Client, worker: ModelWorker, clean: bool) -> None:
        if clean or client.clean:
            # A clean session ends with its connection, for the client too (MQTT 3.1.1, 3.1.2.4).
            client.forget()
        client.clean = clean
        client.connected = False
        client.arrival = Arrival(worker, client.name, clean)
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
        if not present:
            client.forget()
        client.kept = not client.clean
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

    numbers = st.integers(0, 2)
    names = st.integers(0, len(CLIENTS) - 1)

    @rule(name=names, number=numbers, clean=st.sampled_from([False] * 5 + [True]))
    def come(self, name: int, number: int, clean: bool) -> None:
        """A client opens a connection, whatever has become of the one before."""
        client = self.clients[name]
        if client.arrival is not None:
            self._leave(client)
        self._connect(client, self.workers[number], clean)
        if clean:
            # Whichever of two connections is served last decides; this one is to be the first.
            self.cross()

    @rule(name=names)
    def take(self, name: int) -> None:
        self._read(self.clients[name])

    @rule(name=names)
    def publish(self, name: int) -> None:
        client = self.clients[name]
        if client.connected:
            self.last_id += 1
            payload = b"%d" % self.last_id
            client.pending[self.last_id] = payload
            self._publish(client, self.last_id, payload, dup=False)

    @rule(numbers=st.lists(numbers, min_size=2, max_size=4), answered=st.booleans())
    def hurry(self, numbers: list[int], answered: bool) -> None:
        """A client goes from worker to worker, and publishes at each."""
        for number in numbers:
            self.come(0, number, clean=False)
            self.cross()
            self.publish(0)
            if answered:
                self.workers[number].log_answers()
                self.cross()

    @rule(name=names)
    def go(self, name: int) -> None:
        """The client is gone, which its worker does not know yet."""
        if self.clients[name].arrival is not None:
            self._leave(self.clients[name])

    @precondition(lambda self: self.left)
    @rule(first=st.booleans())
    def notice(self, first: bool) -> None:
        """A worker sees that a connection is over."""
        _, wire = self.left.pop(0 if first else -1)
        wire.lose()

    # --- workers --------------------------------------------------------------------------------

    @rule(number=numbers)
    def do_scheduled(self, number: int) -> None:
        self.workers[number].do_scheduled()

    @rule(number=numbers, count=st.integers(1, 4))
    def tell_crossing(self, number: int, count: int) -> None:
        for _ in range(count):
            self.workers[number].tell_crossing()

    @rule(number=numbers, count=st.integers(1, 4))
    def hear_crossing(self, number: int, count: int) -> None:
        for _ in range(count):
            self.workers[number].hear_crossing()

    @rule(number=numbers, count=st.integers(1, 4))
    def read_log(self, number: int, count: int) -> None:
        for _ in range(count):
            self.workers[number].read_log()

    @rule(number=numbers, fails=st.sampled_from([False] * 4 + [True]))
    def log_answers(self, number: int, fails: bool) -> None:
        self.workers[number].log_answers(fails)

    @rule(number=numbers)
    def wait_no_longer(self, number: int) -> None:
        if self.workers[number].arriving:
            self.now += 5.0
            self.workers[number].wait_no_longer()

    @rule()
    def cross(self) -> None:
        """What workers and clients say to each other arrives, before the log says anything."""
        self._move(by_log=False)

    @rule(number=numbers, really=st.sampled_from([False] * 7 + [True]))
    def die(self, number: int, really: bool) -> None:
        """A worker is killed, and another one started in its place."""
        if not really:
            return
        dead = self.workers.pop(number)
        while dead.tell_crossing():
            pass
        self.crossing.leave(dead.crossing)
        self.left = [each for each in self.left if each[0] is not dead]
        for client in self.clients:
            if client.arrival is not None and client.arrival.worker is dead:
                client.arrival, client.connected = None, False
            client.forget()  # what only the dead one knew is over
        self._start()

    # --- quiet ----------------------------------------------------------------------------------

    def _quiet(self) -> None:
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

    def _check(self) -> None:
        assert set(self.stored.values()) <= {1}, "a message was stored twice"
        for worker in self.workers:
            assert not worker.arriving, "a claim waits for ever"
            assert not worker.router.claiming
        for name in CLIENTS:
            having = [each for each in self.workers if ("ada", name) in each.router.sessions]
            assert len(having) <= 1, "two workers have a session"

    @rule()
    def become_quiet(self) -> None:
        self._quiet()
        self._check()

    def teardown(self) -> None:
        """Every client gets in at every worker, and what it repeats is answered."""
        self._quiet()
        self._check()
        for client in self.clients:
            for worker in self.workers:
                if client.arrival is not None:
                    self._leave(client)
                self._connect(client, worker, client.clean)
                self._quiet()
                assert client.connected
                assert not client.pending
                assert not client.released
                self._check()


ClientsThatMove.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
test_a_session_is_at_one_worker_and_its_messages_are_stored_once = ClientsThatMove.TestCase
