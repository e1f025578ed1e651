from collections.abc import Iterable

from gateway.mqtt.session import Session

SHARE_PREFIX: str

def filter_is_valid(topic_filter: str, levels_max: int) -> bool: ...
def has_wildcard(topic_filter: str) -> bool: ...
def matches(topic_filter: str, topic: str) -> bool: ...
def split_share(topic_filter: str) -> tuple[str | None, str]: ...

class Subscription:
    session: Session
    topic_filter: str
    granted_filters: tuple[str, ...]
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int
    share: str | None
    def __init__(
        self,
        session: Session,
        topic_filter: str,
        granted_filters: tuple[str, ...],
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifier: int = 0,
        share: str | None = None,
    ) -> None: ...

class SubscriptionTree:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add(self, subscription: Subscription) -> None: ...
    def remove(self, subscription: Subscription) -> None: ...
    def match(self, topic: str) -> list[Subscription]: ...

def merge(subscriptions: Iterable[Subscription]) -> dict[Session, list[Subscription]]: ...
