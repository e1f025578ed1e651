"""A subscriber that comes and goes in any order: no QoS 1 or 2 message is lost or reordered."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.mqtt.packets.encoder import encode_acknowledgement, encode_puback
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.packets import PacketType
from gateway.mqtt.settings import Settings
from tests.gateway.mqtt.in_memory import Wire, new_router, split_packets

WINDOW = 3


class SubscriberThatComesAndGoes(RuleBasedStateMachine):
    """A persistent session with one wildcard subscription, and a slow reader on a bad network."""

    def __init__(self) -> None:
        super().__init__()
        self.router = new_router(Settings(deliveries_in_flight_max=WINDOW))
        self.wire: Wire | None = None
        self.now = 0.0
        self.published: dict[int, list[bytes]] = {1: [], 2: []}
        self.processed: dict[int, list[bytes]] = {1: [], 2: []}
        # What a client must remember: packets to acknowledge, and received QoS 2 identifiers.
        self.unanswered: list[tuple[int, int]] = []
        self.known: set[int] = set()
        self.connect()
        assert self.wire is not None
        self.take(self.wire.subscribe("t/#", 2))

    def take(self, data: bytes) -> None:
        for first, body in split_packets(data):
            kind = first >> 4
            if kind == PacketType.PUBLISH:
                qos, size = first >> 1 & 3, int.from_bytes(body[:2], "big")
                packet_id = int.from_bytes(body[2 + size : 4 + size], "big")
                payload = body[4 + size :]
                if qos == 1:
                    if payload not in self.processed[1]:
                        self.processed[1].append(payload)
                    else:
                        assert first & 8, "QoS 1 came twice without DUP"
                    self.unanswered.append((PacketType.PUBACK, packet_id))
                else:
                    if packet_id not in self.known:
                        self.known.add(packet_id)
                        self.processed[2].append(payload)
                    self.unanswered.append((PacketType.PUBREC, packet_id))
            elif kind == PacketType.PUBREL:
                packet_id = int.from_bytes(body[:2], "big")
                self.known.discard(packet_id)
                self.unanswered.append((PacketType.PUBCOMP, packet_id))

    def connect(self) -> None:
        self.wire = Wire(self.router, self.now)
        self.take(self.wire.connect("subscriber", clean=False))

    @rule(qos=st.integers(1, 2))
    def publish(self, qos: int) -> None:
        payload = b"%d" % sum(map(len, self.published.values()))
        self.published[qos].append(payload)
        self.router.publish(Message("t/x", payload, qos), None, self.now)

    @precondition(lambda self: self.wire is not None)
    @rule()
    def read(self) -> None:
        assert self.wire is not None
        self.take(self.wire.received())

    @precondition(lambda self: self.wire is not None and self.unanswered)
    @rule(count=st.integers(1, 3))
    def answer(self, count: int) -> None:
        assert self.wire is not None
        for kind, packet_id in self.unanswered[:count]:
            if kind == PacketType.PUBACK:
                self.wire.send(encode_puback(packet_id))
            else:
                self.wire.send(encode_acknowledgement(kind, 4, packet_id))
        del self.unanswered[:count]

    @precondition(lambda self: self.wire is not None)
    @rule(seen=st.booleans())
    def lose_connection(self, seen: bool) -> None:
        assert self.wire is not None
        if seen:
            self.take(self.wire.received())
        self.wire.lose()
        self.wire = None
        self.unanswered.clear()

    @precondition(lambda self: self.wire is not None)
    @rule()
    def pause_and_resume(self) -> None:
        assert self.wire is not None
        self.wire.connection.pause_writing(self.now)
        self.publish(1)
        self.wire.connection.resume_writing(self.now)

    @precondition(lambda self: self.wire is None)
    @rule()
    def reconnect(self) -> None:
        self.connect()

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.router.advance(self.now)

    @invariant()
    def order_is_kept_and_the_window_too(self) -> None:
        for qos in (1, 2):
            count = len(self.processed[qos])
            assert self.processed[qos] == self.published[qos][:count]
        (session,) = self.router.sessions.values()
        assert len(session.in_flight or ()) <= WINDOW
        waiting = session.queue or ()
        assert session.queued_bytes == sum(len(item.message.payload) for item in waiting)

    def teardown(self) -> None:
        """Check that on a good network everything arrives in the end."""
        if self.wire is None:
            self.connect()
        self.read()
        while self.unanswered:
            self.answer(100)
            self.read()
        assert self.processed == self.published


SubscriberThatComesAndGoes.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
test_nothing_is_lost_or_reordered = SubscriberThatComesAndGoes.TestCase
