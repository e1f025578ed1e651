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

    `reason_code` is for the one who handles the packet: what to acknowledge it with, -1 until that
    is known. It is no part of the packet.
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
    """Cuts the byte stream of one client into packets; what a server may send is refused.

    The caller owns the socket: it feeds `receive_data` and drains `next_packet` until that returns
    None. Memory grows with bytes received, never with a length that a peer merely announces.
    """

    version: int
    packet_bytes_max: int
    def __init__(self, packet_bytes_max: int = 268_435_460, version: int = 0) -> None: ...
    def receive_data(self, data: bytes) -> None:
        """Take what arrived."""

    def next_packet(self) -> Packet | None:
        """The next whole packet. Raises RemoteProtocolError, and again on each later call."""

    @property
    def buffered_bytes(self) -> int:
        """The bytes that were received and not yet returned as packets."""

def string_is_valid(text: str) -> bool: ...
def encode_puback(packet_id: int) -> bytes:
    """PUBACK with success, the same in all versions."""

def encode_acknowledgement(
    packet_type: int,
    version: int,
    packet_id: int,
    reason_code: int = 0,
    properties: Properties | None = None,
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; MQTT 3 has neither reason code nor properties."""

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
    """PUBLISH. Raises LocalProtocolError for what MQTT can't express."""

def encode_connack(
    version: int, session_present: bool, reason_code: int, properties: Properties | None = None
) -> bytes:
    """CONNACK; `reason_code` is a CONNACK return code where `version` is below 5."""

def encode_suback(
    version: int, packet_id: int, reason_codes: list[int], properties: Properties | None = None
) -> bytes:
    """SUBACK; MQTT 3.1.1 has but one failure, 0x80."""

def encode_unsuback(
    version: int, packet_id: int, reason_codes: list[int], properties: Properties | None = None
) -> bytes:
    """UNSUBACK; MQTT 3 has no reason codes in it."""

def encode_pingresp() -> bytes:
    """PINGRESP."""

def encode_disconnect(reason_code: int = 0, properties: Properties | None = None) -> bytes:
    """DISCONNECT of MQTT 5; a server of MQTT 3 has none to send."""

def encode_auth(reason_code: int, properties: Properties | None = None) -> bytes:
    """AUTH of MQTT 5."""
