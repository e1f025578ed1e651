from gateway.mqtt.packets.packets import (
    Auth,
    Connect,
    Disconnect,
    PingRequest,
    Properties,
    Subscribe,
    Unsubscribe,
)

class Publish:
    """PUBLISH (section 3.3). `topic` is empty when a topic alias stands for it.

    `reason_code` is not part of the packet: it is the code to acknowledge it with, -1 until that is
    known.
    """

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int
    reason_code: int
    properties: Properties | None
    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None: ...

class Acknowledgement:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7)."""

    packet_type: int
    packet_id: int
    reason_code: int
    properties: Properties | None
    def __init__(
        self,
        packet_type: int,
        packet_id: int,
        reason_code: int = 0,
        properties: Properties | None = None,
    ) -> None: ...

Packet = (
    Publish | Acknowledgement | Connect | Subscribe | Unsubscribe | PingRequest | Disconnect | Auth
)

class Decoder:
    """Splits the byte stream of one client into packets; refuses packets that only servers send.

    The caller owns the socket: it passes bytes to `receive_data` and calls `next_packet` until that
    returns None. Memory grows with the bytes received, never with an announced length.
    """

    version: int
    packet_bytes_max: int
    def __init__(self, packet_bytes_max: int = 268_435_460, version: int = 0) -> None: ...
    def receive_data(self, data: bytes) -> None:
        """Take received bytes."""

    def next_packet(self) -> Packet | None:
        """Return the next complete packet, or None.

        Raises RemoteProtocolError, and again on each later call.
        """

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that were received and not yet returned as packets."""

def string_is_valid(text: str) -> bool: ...
def encode_puback(packet_id: int) -> bytes:
    """Encode a PUBACK with success, which is the same in all versions."""

def encode_acknowledgement(
    packet_type: int,
    version: int,
    packet_id: int,
    reason_code: int = 0,
    properties: Properties | None = None,
) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP; MQTT 3 has no reason codes and properties."""

def encode_publish(
    version: int,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: Properties | None = None,
) -> bytes:
    """Encode a PUBLISH; raises LocalProtocolError if MQTT cannot express it."""

def encode_connack(
    version: int, session_present: bool, reason_code: int, properties: Properties | None = None
) -> bytes:
    """Encode a CONNACK; below version 5, `reason_code` is a CONNACK return code."""

def encode_suback(
    version: int, packet_id: int, reason_codes: list[int], properties: Properties | None = None
) -> bytes:
    """Encode a SUBACK; MQTT 3.1.1 has only one failure code, 0x80."""

def encode_unsuback(
    version: int, packet_id: int, reason_codes: list[int], properties: Properties | None = None
) -> bytes:
    """Encode an UNSUBACK; it has no reason codes in MQTT 3."""

def encode_pingresp() -> bytes:
    """Encode a PINGRESP."""

def encode_disconnect(reason_code: int = 0, properties: Properties | None = None) -> bytes:
    """Encode a DISCONNECT of MQTT 5; servers of MQTT 3 do not send it."""

def encode_auth(reason_code: int, properties: Properties | None = None) -> bytes:
    """Encode an AUTH of MQTT 5."""
