from typing import Final

from gateway.mqtt.interfaces import Parse
from gateway.mqtt.publishing.mapping import TopicRule

FORM_OTHER: Final = 0
FORM_POSITION: Final = 1
FORM_OWNTRACKS: Final = 2

class TopicRoute:
    """The way of messages that one client publishes to one topic."""

    topic: str
    allowed: bool
    parse: Parse | None
    rule: TopicRule | None
    def __init__(
        self,
        topic: str,
        allowed: bool,
        parse: Parse | None,
        device: str | None = None,
        form: int = FORM_OTHER,
        rule: TopicRule | None = None,
        metered: bool = False,
    ) -> None: ...
    @property
    def is_quick(self) -> bool: ...
    @property
    def user(self) -> str: ...
    @property
    def device(self) -> str: ...
    def record_of(self, payload: bytes, received: int) -> tuple[bytes, int] | None: ...

def is_plain(name: str) -> bool: ...
