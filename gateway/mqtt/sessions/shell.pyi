import asyncio
from collections.abc import Callable, Sequence

from gateway.mqtt.interfaces import Completion
from gateway.mqtt.packets.decoder import Publish
from gateway.mqtt.publishing.ingest import Ingest
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.router import Router

class Shell:
    """The base of `gateway.mqtt.listening.listener.MqttServer`."""

    router: Router
    time: Callable[[], float]
    ingest: Ingest
    saturated: bool
    in_flight: int
    in_flight_bytes: int
    stalled: dict[MqttProtocol, None]
    def __init__(self, router: Router, ingest: Ingest, loop: asyncio.AbstractEventLoop) -> None: ...
    draining: bool
    def answer_when_stored(
        self,
        connection: Connection,
        packet: Publish,
        code: int,
        completions: list[Completion],
        now: float,
    ) -> None: ...
    def beyond_quota(
        self, connection: Connection, packet: Publish, retry_after_s: float, now: float
    ) -> None: ...
    def hold(self, connection: Connection, packet: Publish, seconds: float) -> None: ...
    def relieve(self) -> None: ...
    def wake(self) -> None: ...
    def flush(self) -> None: ...

class MqttProtocol(asyncio.Protocol):
    """Moves bytes between one socket and its Connection."""

    connection: Connection
    server: Shell
    transport: asyncio.Transport | None
    address: str
    counted: bool
    pool_party: str | None
    def __init__(self, server: Shell, connection_class: type[Connection]) -> None: ...
    def process(self, now: float) -> None: ...
    def flush(self, now: float) -> None: ...
    def peer(self) -> str: ...

class AllOf:
    """Several completions as one, which fails as soon as one of them fails."""

    def __init__(self, completions: Sequence[Completion]) -> None: ...
    def add_done_callback(self, callback: Callable[[Completion], object]) -> None: ...
