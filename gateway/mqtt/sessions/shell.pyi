import asyncio
from collections.abc import Callable

from gateway.mqtt.publishing.ingest import Ingest
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.held_publishes import HeldPublishes
from gateway.mqtt.sessions.router import Router
from gateway.mqtt.sessions.waiting_publishes import WaitingPublishes

class Shell:
    """The base of `gateway.mqtt.listening.listener.MqttServer`."""

    router: Router
    time: Callable[[], float]
    ingest: Ingest
    publishes: WaitingPublishes
    held: HeldPublishes
    def __init__(self, router: Router, ingest: Ingest, loop: asyncio.AbstractEventLoop) -> None: ...
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
