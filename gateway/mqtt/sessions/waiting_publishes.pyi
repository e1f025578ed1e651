from collections.abc import Callable

from gateway.mqtt.interfaces import Completion
from gateway.mqtt.packets.decoder import Publish
from gateway.mqtt.sessions.hub import Hub
from gateway.mqtt.sessions.link import Link

class WaitingPublishes:
    """The publishes that wait for the log, and the clients that are not read because of them."""

    count: int
    is_full: bool
    is_draining: bool
    def __init__(
        self, router: Hub, time: Callable[[], float], wake: Callable[[], object]
    ) -> None: ...
    def answer_when_stored(
        self,
        connection: Link,
        packet: Publish,
        code: int,
        completions: list[Completion],
        now: float,
    ) -> None: ...
    def forget(self, connection: Link) -> None: ...
    def drain(self) -> None: ...
