from gateway.mqtt.packets.packets import Properties

class Message:
    """An application message, shared by all sessions that receive it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None
    expires_at: float | None
    latest_only: bool
    card_parts: bytes | None
    owner: str | None
    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        expires_at: float | None = None,
        latest_only: bool = False,
        card_parts: bytes | None = None,
    ) -> None: ...
    def expired(self, now: float) -> bool: ...

class Delivery:
    """A message that is queued for or in flight to one client."""

    message: Message
    qos: int
    retain: bool
    dup: bool
    released: bool
    identifiers: list[int] | None
    def __init__(
        self, message: Message, qos: int, retain: bool, identifiers: list[int] | None
    ) -> None: ...

def message_of(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: Properties | None,
    now: float,
) -> Message: ...
