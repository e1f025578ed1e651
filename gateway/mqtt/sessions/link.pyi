from collections.abc import Iterator
from typing import Any, Final

from gateway.mqtt.packets.decoder import Decoder, Publish
from gateway.mqtt.packets.packets import Connect, Will
from gateway.mqtt.sessions.hub import Hub
from gateway.mqtt.sessions.memory_pool import Account
from gateway.mqtt.sessions.session import Session
from gateway.mqtt.sessions.user_turns import UserTurn

AWAITING_CONNECT: Final = 0
AUTHENTICATING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3
CHALLENGED: Final = 4

class Link:
    """The part of a client's connection that runs for every message."""

    owner: Any
    route: Any
    will: Will | None
    closing: tuple[int, str] | None
    publishes: Account | None
    turn: UserTurn | None
    counted_for: str | None
    session: Session | None
    outgoing_bytes: int
    paused_since: float | None
    packet_bytes_max: int
    state: int
    version: int
    keep_alive_s: int
    receive_maximum: int
    topic_aliases_max: int
    timer_tick: int
    blocked: bool
    held: tuple[Any, Publish] | None
    under_way: int
    looks_left: int
    unread: bool
    abort: bool
    _router: Any
    _decoder: Decoder
    _last_received: float
    def __init__(self, router: Hub, owner: object, now: float) -> None: ...
    def receive_data(self, data: bytes, now: float) -> None: ...
    @property
    def buffered_bytes(self) -> int: ...
    def next_event(self, now: float) -> Connect | Publish | None: ...
    def acknowledge(self, packet: Publish, reason_code: int, now: float) -> None: ...
    def fail(self, packet: Publish, now: float) -> None: ...
    @property
    def writable(self) -> bool: ...
    def pause_writing(self, now: float) -> None: ...
    def resume_writing(self, now: float) -> None: ...
    def send(self, data: bytes) -> None: ...
    def has_gone(self) -> bool: ...
    def begin(self, work: Iterator[None]) -> None: ...
    def done(self) -> None: ...
    def change(self) -> None: ...
    def take_outgoing(self, now: float) -> bytes: ...
    def send_acknowledgement(
        self, packet_type: int, packet_id: int, reason_code: int = 0
    ) -> None: ...
