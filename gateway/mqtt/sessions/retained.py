"""Retained messages (MQTT 5.0, section 3.3.1.3): published by clients, or derived from views.

The platform's own messages (addresses, cards, last positions) are never stored here: sources make
them from the views when a client subscribes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from gateway.limits.user_weights import WEIGHT_BYTES, UserWeights
from gateway.mqtt.packets.message import Message
from gateway.mqtt.packets.topics import first_match, has_wildcard
from gateway.mqtt.publishing.position_times import is_overtaken
from gateway.mqtt.rights.acl import ROOTS
from waylog.observability.telemetry import now_ms
from waylog.sealing.sealing import owner_of_mqtt_topic

#: Devices that one step of a search in the views examines.
LOOKED_AT: Final = 200
#: Topics that one step of a search in the store compares with the filter.
MATCHED_AT_ONCE: Final = 500
#: Topics whose copying counts as one step.
_COPIED_AT_ONCE: Final = 4_000

_ENTRY_BYTES = 300  # estimated size of a message's objects, apart from topic and payload


class RetainedSource(Protocol):
    """Makes retained messages on demand."""

    def retained(self, topic_filter: str) -> Iterable[Message | None]:
        """Yield the messages whose topics match a valid filter; None where a search may pause."""


class RetainedStore:
    """The last retained message of each topic, bounded for each user and for all.

    A user beyond its bounds loses its message that was renewed longest ago. If all users together
    exceed theirs, the user with the most memory loses one.
    """

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        *,
        user_messages_max: int | None = None,
        user_bytes_max: int | None = None,
    ) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._user_messages_max = messages_max if user_messages_max is None else user_messages_max
        self._user_bytes_max = bytes_max if user_bytes_max is None else user_bytes_max
        self._messages: dict[str, Message] = {}
        #: Topics of each user, the one renewed longest ago first; then the bytes of each user.
        self._of_users: dict[str, OrderedDict[str, None]] = {}
        self._user_bytes: dict[str, int] = {}
        self._weights = UserWeights()
        # First two levels -> topics; filters of ordinary users always start with two such levels.
        # Most users have one topic there, which needs no set.
        self._prefixes: dict[str, str | set[str]] = {}
        #: Called with every message that `put` stores, not with those of `take`; an empty message
        #: removes that of its topic.
        self.on_put: Callable[[Message], None] | None = None
        self.size_bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: str) -> Message | None:
        """Return the message of a topic, or None; it may have expired."""
        return self._messages.get(topic)

    def put(self, message: Message) -> None:
        """Replace the message of a topic; an empty message only removes it.

        A position that is older than the stored one is ignored.
        """
        if self._is_overtaken(message):
            return
        evicted = self._take(message)
        if self.on_put is not None:
            for topic in evicted:
                self.on_put(Message(topic, b""))
            if message.topic not in evicted:
                self.on_put(message)

    def take(self, message: Message) -> None:
        """Replace the message of a topic as `put` does, for one that the log has already."""
        if not self._is_overtaken(message):
            self._take(message)

    def _take(self, message: Message) -> list[str]:
        """Store a message; return the topics whose messages were evicted for it."""
        if message.topic in self._messages:
            self._remove(message.topic)
        if not message.payload:
            return []
        user = message.owner = owner_of(message)
        self._messages[message.topic] = message
        self._of_users.setdefault(user, OrderedDict())[message.topic] = None
        self._change(user, _size(message))
        self._remember(message.topic)
        evicted: list[str] = []
        while (
            len(self._of_users.get(user, ())) > self._user_messages_max
            or self._user_bytes.get(user, 0) > self._user_bytes_max
        ):
            evicted.append(self._evict(user))
        while len(self._messages) > self._messages_max or self.size_bytes > self._bytes_max:
            evicted.append(self._evict(self._weights.heaviest() or next(iter(self._of_users))))
        return evicted

    def _evict(self, user: str) -> str:
        oldest = next(iter(self._of_users[user]))
        self._remove(oldest)
        self.evicted += 1
        return oldest

    def _remove(self, topic: str) -> None:
        message = self._messages.pop(topic)
        user = owner_of(message)
        topics = self._of_users[user]
        del topics[topic]
        if not topics:
            del self._of_users[user]
        self._change(user, -_size(message))
        self._forget(topic)

    def _change(self, user: str, size: int) -> None:
        self.size_bytes += size
        before = self._user_bytes.pop(user, 0)
        if before + size:
            self._user_bytes[user] = before + size
        self._weights.change(user, (before + size) // WEIGHT_BYTES - before // WEIGHT_BYTES)

    def _is_overtaken(self, message: Message) -> bool:
        previous = self._messages.get(message.topic)
        return previous is not None and is_overtaken(
            message.topic, message.payload, previous.payload, now_ms()
        )

    def matching(self, topic_filter: str) -> Iterator[str | None]:
        """Yield the topics that match a valid filter and have a message.

        A None follows each MATCHED_AT_ONCE topics that do not match, so that a search can be
        spread over several turns.
        """
        if not has_wildcard(topic_filter):
            if topic_filter in self._messages:
                yield topic_filter
            return
        prefix = _prefix(topic_filter)
        topics: Iterable[str]
        if has_wildcard(prefix):
            topics = self._messages
        else:
            known = self._prefixes.get(prefix, ())
            topics = (known,) if isinstance(known, str) else known
        # A copy, as the store changes while a slow reader takes the topics. Copying costs time too.
        copied = list(topics)
        for _ in range(len(copied) // _COPIED_AT_ONCE):
            yield None
        position = 0
        while position < len(copied):
            found = first_match(topic_filter, copied, position, position + MATCHED_AT_ONCE)
            if found < 0:
                position += MATCHED_AT_ONCE
                yield None
            else:
                position = found + 1
                yield copied[found]

    def of_device(self, device: str) -> list[str]:
        """Return the topics of a device (`user/device`) that have a message."""
        user = device.partition("/")[0]
        found: list[str] = []
        for root in ("owntracks", "devices"):
            topics = self._prefixes.get(f"{root}/{user}", ())
            found += (topics,) if isinstance(topics, str) else topics
        return [topic for topic in found if owner_of_mqtt_topic(topic) == device]

    def _remember(self, topic: str) -> None:
        prefix = _prefix(topic)
        topics = self._prefixes.get(prefix)
        if topics is None:
            self._prefixes[prefix] = topic
        elif isinstance(topics, str):
            self._prefixes[prefix] = {topics, topic}
        else:
            topics.add(topic)

    def _forget(self, topic: str) -> None:
        prefix = _prefix(topic)
        topics = self._prefixes[prefix]
        if isinstance(topics, str):
            del self._prefixes[prefix]
            return
        topics.discard(topic)
        if not topics:
            del self._prefixes[prefix]


def owner_of(message: Message) -> str:
    """Return the user in whose share a message counts: its publisher.

    For old records without one it is the user in the topic.
    """
    if message.owner is not None:
        return message.owner
    levels = message.topic.split("/", 2)
    return levels[1] if levels[0] in ROOTS and len(levels) > 1 else ""


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload) + _ENTRY_BYTES


def _prefix(topic: str) -> str:
    return "/".join(topic.split("/", 2)[:2])
