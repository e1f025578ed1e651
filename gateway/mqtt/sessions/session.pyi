from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from gateway.mqtt.interfaces import Identity
from gateway.mqtt.packets.codec import Decoder, Publish
from gateway.mqtt.packets.packets import Connect, Properties, Will
from gateway.mqtt.packets.topics import ElsewhereInterest, Subscription, SubscriptionTree
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.sessions.retained import RetainedSource, RetainedStore
from gateway.mqtt.sessions.router import WillDue
from gateway.mqtt.sessions.timers import TimerWheel
from gateway.mqtt.settings import Settings

NEVER: Final = 0xFFFFFFFF
AWAITING_CONNECT: Final = 0
AUTHENTICATING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3
CHALLENGED: Final = 4

class Message:
    """An application message, shared by all sessions that receive it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties | None
    expires_at: float | None
    latest_only: bool
    told: tuple[int, bytes] | None
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
        told: tuple[int, bytes] | None = None,
    ) -> None: ...
    def expired(self, now: float) -> bool: ...

class Pool:
    """A pool of bytes that all users share."""

    total: int
    each: int
    used: int
    def __init__(self, total: int, each: int) -> None: ...

class Account:
    """One user's part of a pool (bytes)."""

    pool: Pool
    held: int
    waiting: dict[Any, None] | None
    def __init__(self, pool: Pool) -> None: ...
    def take(self, amount: int) -> bool: ...
    def hold(self, amount: int) -> None: ...
    def give_back(self, amount: int) -> None: ...

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

class Hub:
    """The base of `gateway.mqtt.sessions.router.Router`: delivers messages to sessions."""

    settings: Settings
    rules: AccessRules
    timers: TimerWheel
    changed: list[Any]  # Connection
    wills: list[WillDue]
    retained: RetainedStore
    sources: list[RetainedSource]
    subscriptions: SubscriptionTree
    elsewhere: ElsewhereInterest
    pass_on: Callable[[Message], None] | None
    counters: Counter[str]
    steps_left: int
    work: deque[Iterator[None]]
    in_turns: bool
    rights_changes: int
    def begin(self, work: Iterator[None]) -> None: ...
    def __init__(
        self,
        settings: Settings,
        rules: AccessRules,
        timers: TimerWheel,
        retained: RetainedStore,
        counters: Counter[str],
    ) -> None: ...
    def publish_to(
        self,
        found: list[Subscription],
        message: Message,
        publisher: Session | None,
        now: float,
        owner: str | None = None,
    ) -> None: ...
    def deliver(
        self,
        message: Message,
        subscriptions: list[Subscription],
        publisher: Session | None,
        now: float,
    ) -> None: ...

class Link:
    """The part of a client's connection that runs for every message."""

    owner: Any
    route: Any
    will: Will | None
    closing: tuple[int, str] | None
    publishes: Account | None
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
    def begin(self, work: Iterator[None]) -> None: ...
    def done(self) -> None: ...
    def _change(self) -> None: ...
    def take_outgoing(self, now: float) -> bytes: ...
    def send_acknowledgement(
        self, packet_type: int, packet_id: int, reason_code: int = 0
    ) -> None: ...

def message_of(
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: Properties | None,
    now: float,
) -> Message: ...
