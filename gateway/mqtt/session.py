"""What the server remembers of one client: subscriptions, and messages on their way to it.

A session outlives its connections if the client asked for that (MQTT 5.0, section 4.1). Sans-IO:
the time comes as an argument, packets leave through the connection the session is bound to.
Containers are made when they are first needed: most sessions of devices never need most of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gateway.mqtt.packets import PacketType, Properties, ReasonCode, Will

if TYPE_CHECKING:
    from gateway.mqtt.application import Identity
    from gateway.mqtt.connection import Connection
    from gateway.mqtt.settings import Settings
    from gateway.mqtt.topics import Subscription

NEVER: Final = 0xFFFFFFFF  # Session Expiry Interval: does not expire
_PACKET_ID_MAX: Final = 0xFFFF


class Message:
    """An application message, shared by all sessions it goes to."""

    __slots__ = ("expires_at", "latest_only", "payload", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        expires_at: float | None = None,
        latest_only: bool = False,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain  # as published
        self.properties = properties
        self.expires_at = expires_at  # s, on the clock that is passed as `now`
        #: While it waits for a client, a newer message of the same topic takes its place.
        self.latest_only = latest_only

    def expired(self, now: float) -> bool:
        """Whether the publisher did not want it to be delivered any more."""
        return self.expires_at is not None and self.expires_at <= now


class Delivery:
    """A message on its way to one client."""

    __slots__ = ("dup", "identifiers", "message", "qos", "released", "retain")

    def __init__(self, message: Message, qos: int, retain: bool, identifiers: list[int] | None):
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.dup = False  # was sent before, on an earlier connection
        self.released = False  # QoS 2: PUBREC came, PUBREL was sent


class Session:
    """State of one client; `connection` is None while it is away."""

    __slots__ = (
        "backlog",
        "client_id",
        "connection",
        "deadline",
        "expiry_interval_s",
        "identity",
        "in_flight",
        "next_packet_id",
        "queue",
        "queued_bytes",
        "received",
        "settings",
        "subscriptions",
        "timer_tick",
        "will",
        "will_at",
    )

    def __init__(self, client_id: str, identity: Identity, settings: Settings) -> None:
        self.client_id = client_id
        self.identity = identity
        self.settings = settings
        self.connection: Connection | None = None
        self.expiry_interval_s = 0  # after the end of a connection
        self.deadline = 0.0  # when it expires; only while it is away
        self.timer_tick = 0
        self.will: Will | None = None  # of a connection that ended, waiting for its delay
        self.will_at = 0.0
        self.subscriptions: dict[str, Subscription] = {}
        #: Retained messages still to be sent, by topic filter.
        self.backlog: dict[str, tuple[Subscription, Iterator[Message]]] = {}
        #: By packet identifier, in the order of sending: len <= deliveries_in_flight_max.
        self.in_flight: dict[int, Delivery] | None = None
        self.queue: deque[Delivery] | None = None  # None or not empty
        self.queued_bytes = 0
        #: QoS 2 publishes of the client that were stored and not released yet.
        self.received: set[int] | None = None
        self.next_packet_id = 1

    # --- to the client --------------------------------------------------------------------------

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: list[int] | None,
        now: float,
    ) -> bool:
        """Send or queue a message; False if it was dropped for want of room or connection."""
        connection = self.connection
        ready = connection is not None and connection.writable
        if qos == 0:
            if not ready:
                return False
            assert connection is not None
            connection.send_publish(message, 0, retain, False, 0, identifiers, now)
            return True
        delivery = Delivery(message, qos, retain, identifiers)
        if ready and self.queue is None and self._window_open():
            self._send(delivery, now)
            return True
        return self._enqueue(delivery)

    def pump(self, now: float) -> None:
        """Send what waits, as far as window and connection allow."""
        while (
            self.connection is not None
            and (self.queue is not None or self.backlog)
            and self.connection.writable
            and self._window_open()
        ):
            delivery = self._next_waiting()
            if delivery is None or delivery.message.expired(now):
                continue
            if delivery.qos:
                self._send(delivery, now)
            else:
                self._transmit(0, delivery, now)

    def _next_waiting(self) -> Delivery | None:
        if self.queue is not None:
            delivery = self.queue.popleft()
            self.queued_bytes -= len(delivery.message.payload)
            if not self.queue:
                self.queue = None
            return delivery
        topic_filter, (subscription, messages) = next(iter(self.backlog.items()))
        message = next(messages, None)
        if message is None:
            del self.backlog[topic_filter]
            return None
        identifiers = [subscription.identifier] if subscription.identifier else None
        return Delivery(message, min(message.qos, subscription.qos), True, identifiers)

    def _window_open(self) -> bool:
        assert self.connection is not None
        if self.in_flight is None:
            return True
        window = min(self.settings.deliveries_in_flight_max, self.connection.receive_maximum)
        return len(self.in_flight) < window

    def _send(self, delivery: Delivery, now: float) -> None:
        assert self.connection is not None
        if self.in_flight is None:
            self.in_flight = {}
        while self.next_packet_id in self.in_flight:
            self.next_packet_id = self.next_packet_id % _PACKET_ID_MAX + 1
        packet_id = self.next_packet_id
        self.next_packet_id = packet_id % _PACKET_ID_MAX + 1
        self.in_flight[packet_id] = delivery
        if not self._transmit(packet_id, delivery, now):
            del self.in_flight[packet_id]

    def _transmit(self, packet_id: int, delivery: Delivery, now: float) -> bool:
        assert self.connection is not None
        return self.connection.send_publish(
            delivery.message,
            delivery.qos,
            delivery.retain,
            delivery.dup,
            packet_id,
            delivery.identifiers,
            now,
        )

    def _enqueue(self, delivery: Delivery) -> bool:
        message = delivery.message
        if self.queue is None:
            self.queue = deque()
        elif message.latest_only:
            for index, waiting in enumerate(self.queue):
                if waiting.message.latest_only and waiting.message.topic == message.topic:
                    self.queued_bytes += len(message.payload) - len(waiting.message.payload)
                    self.queue[index] = delivery
                    return True
        if (
            len(self.queue) >= self.settings.queued_messages_max
            or self.queued_bytes + len(message.payload) > self.settings.queued_bytes_max
        ):
            if not self.queue:
                self.queue = None
            return False
        self.queue.append(delivery)
        self.queued_bytes += len(message.payload)
        return True

    def acknowledged(
        self, packet_type: int, packet_id: int, reason_code: int, now: float
    ) -> tuple[int, int] | None:
        """Take PUBACK, PUBREC or PUBCOMP; returns type and reason code of what to answer."""
        delivery = None if self.in_flight is None else self.in_flight.get(packet_id)
        if packet_type == PacketType.PUBREC:
            if delivery is None or delivery.qos != 2:
                return PacketType.PUBREL, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            if reason_code < ReasonCode.UNSPECIFIED_ERROR:
                delivery.released = True
                return PacketType.PUBREL, ReasonCode.SUCCESS
        elif delivery is None or (delivery.qos == 2) != (packet_type == PacketType.PUBCOMP):
            return None
        assert self.in_flight is not None
        del self.in_flight[packet_id]
        if not self.in_flight:
            self.in_flight = None
        self.pump(now)
        return None

    def resume(self, now: float) -> None:
        """On a new connection, send again what the old one may have lost (section 4.4)."""
        connection = self.connection
        assert connection is not None
        for packet_id, delivery in list((self.in_flight or {}).items()):
            if delivery.released:
                connection.send_acknowledgement(PacketType.PUBREL, packet_id)
                continue
            delivery.dup = True
            if not self._transmit(packet_id, delivery, now) and self.in_flight is not None:
                del self.in_flight[packet_id]
        self.pump(now)

    # --- from the client ------------------------------------------------------------------------

    def release(self, packet_id: int) -> bool:
        """Take PUBREL: the packet identifier may be used again. False if it was not in use."""
        if self.received is None or packet_id not in self.received:
            return False
        self.received.discard(packet_id)
        if not self.received:
            self.received = None
        return True

    def queued(self) -> int:
        """How many messages wait."""
        return 0 if self.queue is None else len(self.queue)
