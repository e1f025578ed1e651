"""Topic filters, and who subscribes to a topic (MQTT 5.0, section 4.7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.mqtt.session import Session

SHARE_PREFIX: Final = "$share/"


def filter_is_valid(topic_filter: str, levels_max: int) -> bool:
    """Whether wildcards stand where they may, and there are not too many levels."""
    levels = topic_filter.split("/")
    if not topic_filter or len(levels) > levels_max:
        return False
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index != len(levels) - 1):
            return False
        if "+" in level and level != "+":
            return False
    return True


def has_wildcard(topic_filter: str) -> bool:
    """Whether a valid filter can match more than one topic."""
    return "+" in topic_filter or "#" in topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a valid filter matches a topic name."""
    if topic_filter == topic:
        return True
    filter_levels = topic_filter.split("/")
    levels = topic.split("/")
    # Section 4.7.2: topics of the server are not matched by a wildcard at the first level.
    if topic.startswith("$") and filter_levels[0] in {"+", "#"}:
        return False
    for index, wanted in enumerate(filter_levels):
        if wanted == "#":
            return True
        if index >= len(levels) or wanted not in {"+", levels[index]}:
            return False
    return len(filter_levels) == len(levels)


def split_share(topic_filter: str) -> tuple[str | None, str]:
    """Share name and filter of `$share/NAME/FILTER`; the name is None for all other filters.

    A share name or filter that is not valid comes back as an empty filter.
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        return None, topic_filter
    name, _, inner = topic_filter.removeprefix(SHARE_PREFIX).partition("/")
    if not name or "+" in name or "#" in name:
        return name, ""
    return name, inner


class Subscription:
    """One topic filter of one session, as asked for and as granted."""

    __slots__ = (
        "granted_filters",
        "identifier",
        "no_local",
        "qos",
        "retain_as_published",
        "session",
        "share",
        "topic_filter",
    )

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
    ) -> None:
        self.session = session
        self.topic_filter = topic_filter
        #: What `topic_filter` is narrowed to, so that it matches only what the owner may read.
        self.granted_filters = granted_filters
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier  # 0 = none
        self.share = share


class SharedGroup:
    """Subscriptions of one share name and filter: each message goes to one of them."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[Subscription, None] = {}

    def choose(self) -> Subscription:
        """The member whose turn it is; those on line come first."""
        for subscription in self.members:
            if subscription.session.connection is not None:
                break
        else:
            subscription = next(iter(self.members))
        # Round robin: whoever was chosen goes to the end.
        del self.members[subscription]
        self.members[subscription] = None
        return subscription


Subscriber = Subscription | SharedGroup
_Subscribers = dict[Subscriber, None]


class _Node:
    """A level of the wildcard trie."""

    __slots__ = ("below", "children", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.here: _Subscribers = {}  # filters that end at this level
        self.below: _Subscribers = {}  # filters that go on with `#`


class SubscriptionTree:
    """All subscriptions, found by topic.

    Most clients subscribe to exactly one topic, their own: filters without a wildcard stand in one
    dictionary, and a topic with a single subscriber needs no container. Only filters with a
    wildcard cost a walk.
    """

    def __init__(self) -> None:
        self._exact: dict[str, Subscriber | _Subscribers] = {}
        self._root = _Node()
        self._wildcards = 0
        self._groups: dict[tuple[str, str], SharedGroup] = {}

    def add(self, subscription: Subscription) -> None:
        """Make a subscription known under all its granted filters."""
        for topic_filter in subscription.granted_filters:
            if subscription.share is None:
                self._insert(topic_filter, subscription)
                continue
            key = (subscription.share, topic_filter)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = SharedGroup()
                self._insert(topic_filter, group)
            group.members[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """Forget a subscription that was added."""
        for topic_filter in subscription.granted_filters:
            if subscription.share is None:
                self._delete(topic_filter, subscription)
                continue
            key = (subscription.share, topic_filter)
            group = self._groups[key]
            group.members.pop(subscription, None)
            if not group.members:
                del self._groups[key]
                self._delete(topic_filter, group)

    def match(self, topic: str) -> list[Subscription]:
        """The subscriptions that match; a session is in it once for each of its filters."""
        exact = self._exact.get(topic)
        if exact is None and not self._wildcards:
            return []
        found: list[Subscriber] = []
        if exact is not None:
            if type(exact) is dict:
                found.extend(exact)
            else:
                found.append(exact)  # type: ignore[arg-type]
        if self._wildcards:
            self._walk(topic, found)
        return [
            subscriber.choose() if isinstance(subscriber, SharedGroup) else subscriber
            for subscriber in found
        ]

    def _walk(self, topic: str, found: list[Subscriber]) -> None:
        nodes = [self._root]
        wildcards_match = not topic.startswith("$")
        for level in topic.split("/"):
            following: list[_Node] = []
            for node in nodes:
                if wildcards_match:
                    found.extend(node.below)
                    child = node.children.get("+")
                    if child is not None:
                        following.append(child)
                child = node.children.get(level)
                if child is not None:
                    following.append(child)
            if not following:
                return
            nodes = following
            wildcards_match = True
        for node in nodes:
            found.extend(node.here)
            found.extend(node.below)  # "a/#" matches "a" too

    def _insert(self, topic_filter: str, subscriber: Subscriber) -> None:
        if not has_wildcard(topic_filter):
            exact = self._exact.get(topic_filter)
            if exact is None:
                self._exact[topic_filter] = subscriber
            elif isinstance(exact, dict):
                exact[subscriber] = None
            else:
                self._exact[topic_filter] = {exact: None, subscriber: None}
            return
        node = self._root
        levels = topic_filter.split("/")
        for level in levels[:-1] if levels[-1] == "#" else levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
            node = child
        (node.below if levels[-1] == "#" else node.here)[subscriber] = None
        self._wildcards += 1

    def _delete(self, topic_filter: str, subscriber: Subscriber) -> None:
        if not has_wildcard(topic_filter):
            exact = self._exact.get(topic_filter)
            if isinstance(exact, dict):
                exact.pop(subscriber, None)
                if not exact:
                    del self._exact[topic_filter]
            elif exact is subscriber:
                del self._exact[topic_filter]
            return
        path: list[tuple[_Node, str]] = []
        node = self._root
        levels = topic_filter.split("/")
        for level in levels[:-1] if levels[-1] == "#" else levels:
            path.append((node, level))
            node = node.children[level]
        del (node.below if levels[-1] == "#" else node.here)[subscriber]
        self._wildcards -= 1
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.here or child.below:
                break
            del parent.children[level]


def merge(subscriptions: Iterable[Subscription]) -> dict[Session, list[Subscription]]:
    """Subscriptions by session: overlapping filters of one client are one delivery."""
    merged: dict[Session, list[Subscription]] = {}
    for subscription in subscriptions:
        merged.setdefault(subscription.session, []).append(subscription)
    return merged
