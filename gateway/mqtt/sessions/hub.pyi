from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from gateway.mqtt.left_out import LeftOut
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import ElsewhereInterest, Subscription, SubscriptionTree
from gateway.mqtt.rights.acl import AccessRules
from gateway.mqtt.sessions.retained import RetainedSource, RetainedStore
from gateway.mqtt.sessions.router import WillDue
from gateway.mqtt.sessions.session import Session
from gateway.mqtt.sessions.timers import TimerWheel
from gateway.mqtt.sessions.user_turns import UserQueues, UserTurn
from gateway.mqtt.settings import Settings

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
    left_out: LeftOut
    steps_left: int
    work: UserQueues
    in_turns: bool
    rights_changes: int
    def begin(self, work: Iterator[None], user: UserTurn | None = None) -> None: ...
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
