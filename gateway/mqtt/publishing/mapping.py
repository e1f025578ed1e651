"""Operators' rules that map MQTT topics to topics of the log.

A rule is written FILTER=TOPIC or FILTER=TOPIC:KEY. A message that its sender may publish and whose
topic matches FILTER is appended to TOPIC under KEY before it is acknowledged, and goes to MQTT
subscribers as well. KEY may contain `{topic}`, `{user}` (the publisher) and `{1}`, `{2}`, ...
(levels of the topic); the default is the topic. For TOPIC `location` the payload is a position in
our own JSON, and KEY is its device, USER/DEVICE; the default is the publisher's device named by the
level that the last `+` of FILTER matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.mqtt.packets.packets import Properties, PropertyId
from gateway.mqtt.packets.topics import filter_is_valid, matches
from waylog.kafka.topics import LOCATION, TOPICS, Topic

_RULE: Final = re.compile(r"(?P<filter>.+?)=(?P<topic>[A-Za-z0-9._-]{1,249})(?::(?P<key>.+))?")
_PLACE: Final = re.compile(r"\{(topic|user|[1-9][0-9]{0,2})\}")
_LEVELS_MAX: Final = 128
_KEY_CHARACTERS_MAX: Final = 1024
_PARTITIONS: Final = 4

#: Limits for the MQTT 5 user properties that become headers of the record.
_HEADERS_MAX: Final = 32
_HEADER_BYTES_MAX: Final = 8 * 1024

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class TopicRule:
    """A mapping rule: a topic filter, a topic of the log, and a template of the key."""

    topic_filter: str
    log_topic: str
    key: str

    def matches(self, topic: str) -> bool:
        """Return whether the rule applies to a topic."""
        return matches(self.topic_filter, topic)

    def key_of(self, user: str, topic: str) -> str:
        """Return the key of a message that `user` publishes to a matching topic."""
        levels = topic.split("/")

        def named(place: re.Match[str]) -> str:
            name = place.group(1)
            if name == "topic":
                return topic
            if name == "user":
                return user
            number = int(name)
            return levels[number - 1] if number <= len(levels) else ""

        return _PLACE.sub(named, self.key)[:_KEY_CHARACTERS_MAX]


def parse_rule(text: str) -> TopicRule:
    """Parse a rule; raises ValueError with a text that says what is wrong with it."""
    parts = _RULE.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is not FILTER=TOPIC or FILTER=TOPIC:KEY")
    topic_filter, log_topic, key = parts.group("filter", "topic", "key")
    if not filter_is_valid(topic_filter, _LEVELS_MAX) or topic_filter.startswith("$"):
        raise ValueError(f"{topic_filter!r} is not a topic filter")
    ours = {topic.name for topic in TOPICS} - {LOCATION}
    if log_topic in ours or log_topic.startswith("__") or log_topic in (".", ".."):
        raise ValueError(f"topic {log_topic!r} is not one that MQTT clients may write to")
    if key is None:
        key = "{topic}" if log_topic != LOCATION else _device_of(topic_filter)
    elif log_topic == LOCATION and key.count("/") != 1:
        raise ValueError(f"the key of a rule for {LOCATION!r} is USER/DEVICE, not {key!r}")
    _check_levels(topic_filter, key)
    return TopicRule(topic_filter, log_topic, key)


def _check_levels(topic_filter: str, key: str) -> None:
    """Raise ValueError for a key with a level that no topic of the filter has."""
    levels = topic_filter.split("/")
    if levels[-1] == "#":
        return  # topics may have any number of them
    for name in _PLACE.findall(key):
        if name.isdigit() and int(name) > len(levels):
            raise ValueError(
                f"the key {key!r} has level {name}, and topics of {topic_filter!r} have "
                f"{len(levels)}"
            )


def _device_of(topic_filter: str) -> str:
    levels = topic_filter.split("/")
    if "+" not in levels:
        raise ValueError(f"{topic_filter!r} has no + to take the device from: add a key")
    return f"{{user}}/{{{len(levels) - levels[::-1].index('+')}}}"


def topics_of(rules: tuple[TopicRule, ...]) -> list[Topic]:
    """Return the topics of the log that rules write to, except the platform's own."""
    names = dict.fromkeys(rule.log_topic for rule in rules)
    return [Topic(name, _PARTITIONS) for name in names if name != LOCATION]


def headers_of(user: str, topic: str, properties: Properties | None) -> Headers:
    """Return the headers of a record: the message's origin and its MQTT 5 properties.

    These are `mqtt.topic`, `mqtt.user`, `content-type`, `mqtt.response-topic`,
    `mqtt.correlation-data`, and user properties under their own names, up to limits of their number
    and size.
    """
    headers: Headers = [("mqtt.topic", topic.encode()), ("mqtt.user", user.encode())]
    if not properties:
        return headers
    for name, header in (
        (PropertyId.CONTENT_TYPE, "content-type"),
        (PropertyId.RESPONSE_TOPIC, "mqtt.response-topic"),
        (PropertyId.CORRELATION_DATA, "mqtt.correlation-data"),
    ):
        value = properties.get(name)
        if value is not None:
            headers.append((header, value if isinstance(value, bytes) else str(value).encode()))
    room = _HEADER_BYTES_MAX
    pairs = properties.get(PropertyId.USER_PROPERTY)
    for pair in (pairs if isinstance(pairs, list) else [])[:_HEADERS_MAX]:
        assert isinstance(pair, tuple)
        name_text, value_text = pair
        # These names are reserved for the platform.
        if name_text.startswith("mqtt.") or name_text == "traceparent":
            continue
        room -= len(name_text) + len(value_text)
        if room < 0:
            break
        headers.append((name_text, value_text.encode()))
    return headers
