"""The sending half of a connection: bytes collect until the shell takes them. Sans-IO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.mqtt.codec import encode_acknowledgement, encode_publish
from gateway.mqtt.packets import Properties, PropertyId
from gateway.mqtt.session import Message

if TYPE_CHECKING:
    from gateway.mqtt.router import Router
    from gateway.mqtt.session import Session

AWAITING_CONNECT: Final = 0
AUTHENTICATING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3

#: Properties of a PUBLISH that belong to the message, not to this hop.
_MESSAGE_PROPERTIES: Final = frozenset(
    {
        PropertyId.PAYLOAD_FORMAT_INDICATOR,
        PropertyId.CONTENT_TYPE,
        PropertyId.RESPONSE_TOPIC,
        PropertyId.CORRELATION_DATA,
        PropertyId.USER_PROPERTY,
    }
)


def message_of(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: Properties | None,
    now: float,
) -> Message:
    """The application message of a PUBLISH or of a will."""
    if not properties:
        return Message(topic, payload, qos, retain)
    expiry = properties.get(PropertyId.MESSAGE_EXPIRY_INTERVAL)
    kept = {name: value for name, value in properties.items() if name in _MESSAGE_PROPERTIES}
    expires_at = now + expiry if isinstance(expiry, int) else None
    return Message(topic, payload, qos, retain, kept or None, expires_at)


class SendingHalf:
    """What a connection has to tell its client, and how much of it the client takes."""

    __slots__ = (
        "_aliases_out",
        "_announced",
        "_last_received",
        "_router",
        "keep_alive_s",
        "outgoing",
        "outgoing_bytes",
        "packet_bytes_max",
        "paused_since",
        "receive_maximum",
        "session",
        "state",
        "timer_tick",
        "topic_aliases_max",
        "version",
    )

    def __init__(self, router: Router, now: float) -> None:
        self._router = router
        self._last_received = now
        self._announced = False  # stands in router.changed
        self._aliases_out: dict[str, int] | None = None
        self.state = AWAITING_CONNECT
        self.version = 0
        self.session: Session | None = None
        self.keep_alive_s = 0
        self.receive_maximum = 0xFFFF
        self.packet_bytes_max = 0xFFFFFFFF  # what the client accepts
        self.topic_aliases_max = 0
        self.outgoing: list[bytes] = []
        self.outgoing_bytes = 0
        self.paused_since: float | None = None  # the transport takes nothing more
        self.timer_tick = 0

    @property
    def writable(self) -> bool:
        """Whether messages may be sent; answers to the client's own packets always are."""
        return (
            self.state == CONNECTED
            and self.paused_since is None
            and self.outgoing_bytes < self._router.settings.outgoing_bytes_max
        )

    def pause_writing(self, now: float) -> None:
        """The transport has more than it can send."""
        self.paused_since = now
        self._router.timers.schedule(self, now + self._router.settings.stalled_reader_timeout_s)

    def resume_writing(self, now: float) -> None:
        """The transport can send again."""
        self.paused_since = None
        self._last_received = now
        if self.keep_alive_s:
            self._router.timers.schedule(self, now + 1.5 * self.keep_alive_s)
        if self.session is not None and self.state == CONNECTED:
            self.session.pump(now)

    def send(self, data: bytes) -> None:
        """Queue bytes for the client."""
        if self.state == CLOSED:
            return
        self.outgoing.append(data)
        self.outgoing_bytes += len(data)
        if not self._announced:
            self._change()

    def _change(self) -> None:
        if not self._announced:
            self._announced = True
            self._router.changed.append(self)  # type: ignore[arg-type]  # always a Connection

    def take_outgoing(self, now: float) -> bytes:
        """The bytes to be sent now. The caller has removed this from `router.changed`."""
        self._announced = False
        if not self.outgoing:
            return b""
        data = self.outgoing[0] if len(self.outgoing) == 1 else b"".join(self.outgoing)
        self.outgoing.clear()
        full = self.outgoing_bytes >= self._router.settings.outgoing_bytes_max
        self.outgoing_bytes = 0
        if full and self.session is not None:
            self.session.pump(now)
        return data

    def send_acknowledgement(self, packet_type: int, packet_id: int, reason_code: int = 0) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(encode_acknowledgement(packet_type, self.version, packet_id, reason_code))

    def send_publish(
        self,
        message: Message,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        identifiers: list[int] | None,
        now: float,
    ) -> bool:
        """Send a message; False if the client does not take one of that size."""
        topic = message.topic
        properties: Properties | None = None
        if self.version == 5:
            properties = dict(message.properties or {})
            if identifiers:
                properties[PropertyId.SUBSCRIPTION_IDENTIFIER] = identifiers
            if message.expires_at is not None:
                left = max(0, round(message.expires_at - now))
                properties[PropertyId.MESSAGE_EXPIRY_INTERVAL] = left
            if self.topic_aliases_max:
                topic = self._use_alias(topic, properties)
        data = encode_publish(
            self.version, topic, message.payload, qos, retain, dup, packet_id, properties
        )
        if len(data) > self.packet_bytes_max:
            if topic and self._aliases_out is not None:
                # The client never learns what this alias stands for.
                self._aliases_out.pop(topic, None)
            self._router.counters["deliveries_dropped"] += 1
            return False
        self.send(data)
        return True

    def _use_alias(self, topic: str, properties: Properties) -> str:
        if self._aliases_out is None:
            self._aliases_out = {}
        alias = self._aliases_out.get(topic)
        if alias is not None:
            properties[PropertyId.TOPIC_ALIAS] = alias
            return ""
        if len(self._aliases_out) < self.topic_aliases_max:
            alias = self._aliases_out[topic] = len(self._aliases_out) + 1
            properties[PropertyId.TOPIC_ALIAS] = alias
        return topic
