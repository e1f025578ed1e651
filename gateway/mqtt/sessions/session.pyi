from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.message import Delivery, Message
from gateway.mqtt.packets.packets import Will
from gateway.mqtt.packets.topics import Subscription
from gateway.mqtt.sessions.memory_pool import Account
from gateway.mqtt.settings import Settings

NEVER: Final = 0xFFFFFFFF

class Session:
    """State of one client; `connection` is None while it is away."""

    client_id: str
    identity: Identity
    settings: Settings
    connection: Any  # Connection | None
    expiry_interval_s: int
    deadline: float
    timer_tick: int
    will: Will | None
    will_at: float
    subscriptions: dict[str, Subscription]
    reach: int
    filter_bytes: int
    backlog: dict[str, tuple[Subscription, Iterator[Message | None]]] | None
    in_flight: dict[int, Delivery] | None
    queue: deque[Delivery] | None
    queued_bytes: int
    in_flight_bytes: int
    held_bytes: int
    account: Account | None
    will_bytes: int
    received: set[int] | None
    receiving: set[int] | None
    on_settled: Callable[[float], object] | None
    next_packet_id: int
    ended: bool
    epoch: int
    def __init__(self, client_id: str, identity: Identity, settings: Settings) -> None: ...
    def deliver(
        self, message: Message, qos: int, retain: bool, identifiers: list[int] | None, now: float
    ) -> bool: ...
    def pump(self, now: float) -> None: ...
    def await_retained(
        self, subscription: Subscription, messages: Iterator[Message | None]
    ) -> None: ...
    def forget_retained(self, topic_filter: str) -> None: ...
    def keep_queued(self, keep: Callable[[Message], bool]) -> None: ...
    def keep_waiting(self, keep: Callable[[Message], bool]) -> None: ...
    def acknowledged(
        self, packet_type: int, packet_id: int, reason_code: int, now: float
    ) -> tuple[int, int] | None: ...
    def resume(self, now: float) -> None: ...
    def enqueue(self, delivery: Delivery) -> bool: ...
    def release(self, packet_id: int) -> bool: ...
    def close_account(self) -> None: ...
    def hold_will(self, size: int) -> bool: ...
    def restore(self, packet_id: int, delivery: Delivery) -> None: ...
    def queued(self) -> int: ...
