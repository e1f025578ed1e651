"""Retained messages (MQTT 5.0, section 3.3.1.3): those devices published, and those we can derive.

What the platform itself says (addresses, cards, last positions) is never stored here: sources make
these messages from the views when somebody subscribes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.mqtt.position_times import is_overtaken
from gateway.mqtt.session import Message
from gateway.mqtt.topics import has_wildcard, matches
from waylog.sealing import owner_of_mqtt_topic

_ENTRY_BYTES = 300  # of a message's objects, apart from topic and payload


class RetainedSource(Protocol):
    """Makes retained messages on demand."""

    def retained(self, topic_filter: str) -> Iterable[Message]:
        """The messages whose topics match a valid filter."""


class RetainedStore:
    """The last retained message of each topic, bounded: the one not renewed longest goes first."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages: dict[str, Message] = {}  # the one renewed longest ago is first
        # First two levels -> topics, as filters of ordinary users always start with them. Most
        # users have one topic there, which then needs no set.
        self._prefixes: dict[str, str | set[str]] = {}
        #: Told of every message that is put here, not of those that are taken from elsewhere.
        self.on_put: Callable[[Message], None] | None = None
        self.size_bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, topic: str) -> Message | None:
        """The message of a topic; it may have expired."""
        return self._messages.get(topic)

    def put(self, message: Message) -> None:
        """Keep a message in place of an older one of its topic; an empty one only removes it.

        A position that is older than the one that is kept does not take its place.
        """
        if self._is_overtaken(message):
            return
        self.take(message)
        if self.on_put is not None:
            self.on_put(message)

    def take(self, message: Message) -> None:
        """The same for a message that is stored elsewhere already."""
        if self._is_overtaken(message):
            return
        previous = self._messages.pop(message.topic, None)
        if previous is not None:
            self.size_bytes -= _size(previous)
        if not message.payload:
            if previous is not None:
                self._forget(message.topic)
            return
        self._messages[message.topic] = message
        self.size_bytes += _size(message)
        if previous is None:
            self._remember(message.topic)
        while len(self._messages) > self._messages_max or self.size_bytes > self._bytes_max:
            oldest = next(iter(self._messages))
            self.size_bytes -= _size(self._messages.pop(oldest))
            self._forget(oldest)
            self.evicted += 1

    def _is_overtaken(self, message: Message) -> bool:
        previous = self._messages.get(message.topic)
        return previous is not None and is_overtaken(
            message.topic, message.payload, previous.payload
        )

    def matching(self, topic_filter: str) -> list[str]:
        """The topics that match a valid filter and have a message."""
        if not has_wildcard(topic_filter):
            return [topic_filter] if topic_filter in self._messages else []
        prefix = _prefix(topic_filter)
        topics: Iterable[str]
        if has_wildcard(prefix):
            topics = self._messages
        else:
            found = self._prefixes.get(prefix, ())
            topics = (found,) if isinstance(found, str) else found
        return [topic for topic in topics if matches(topic_filter, topic)]

    def of_device(self, device: str) -> list[str]:
        """The topics of a device (`user/device`) that have a message."""
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


def _size(message: Message) -> int:
    return len(message.topic) + len(message.payload) + _ENTRY_BYTES


def _prefix(topic: str) -> str:
    return "/".join(topic.split("/", 2)[:2])
