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
