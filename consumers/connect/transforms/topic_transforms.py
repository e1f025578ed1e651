"""Transforms of the topic: RegexRouter and TimestampRouter. And Filter, which has no topic left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.configuration.validators import valid_regex
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.records import Record, changed
from consumers.connect.java.date_pattern import DatePattern, DatePatternError, time_at
from consumers.connect.java.regular_expression import (
    JavaRegexError,
    check_replacement,
    compile_java,
    replace_first,
)
from consumers.connect.transforms.transform import TOPICS_REMEMBERED, VALUE, Side, Transform
from waylog.bounded_cache import BoundedCache


class Filter(Transform):
    """Leaves records out; a predicate says which."""

    kafka_name = "org.apache.kafka.connect.transforms.Filter"
    has_sides = False

    def apply(self, record: Record) -> Record | None:
        """Return None."""
        return None


class RegexRouter(Transform):
    """Renames topics whose whole name matches an expression."""

    kafka_name = "org.apache.kafka.connect.transforms.RegexRouter"
    has_sides = False
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="regex",
                type=ConfigType.STRING,
                validator=valid_regex,
                importance=Importance.HIGH,
                documentation="A regular expression of Java's.",
            ),
            ConfigKey(
                name="replacement",
                type=ConfigType.STRING,
                importance=Importance.HIGH,
                documentation="The new name; $1 is the first group.",
            ),
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException, also for a replacement with groups that there are not."""
        super().__init__(properties, side)
        self._pattern: Final = compile_java(self.settings["regex"])
        self._replacement: Final[str] = self.settings["replacement"]
        try:
            check_replacement(self._pattern, self._replacement)
        except JavaRegexError as error:
            raise invalid_value("replacement", self._replacement, str(error)) from error
        self._topics: Final = BoundedCache(self._renamed, TOPICS_REMEMBERED)

    def apply(self, record: Record) -> Record:
        """Return the record with the new topic."""
        topic = self._topics.get(record.topic)
        return record if topic == record.topic else changed(record, topic=topic)

    def _renamed(self, topic: str) -> str:
        if self._pattern.fullmatch(topic) is None:
            return topic
        return replace_first(self._pattern, self._replacement, topic)


class TimestampRouter(Transform):
    """Puts the record's time into the topic's name."""

    kafka_name = "org.apache.kafka.connect.transforms.TimestampRouter"
    has_sides = False
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="topic.format",
                type=ConfigType.STRING,
                default="${topic}-${timestamp}",
                importance=Importance.HIGH,
                documentation="The new name; ${topic} is the old one, ${timestamp} the time.",
            ),
            ConfigKey(
                name="timestamp.format",
                type=ConfigType.STRING,
                default="yyyyMMdd",
                importance=Importance.HIGH,
                documentation="A pattern of java.text.SimpleDateFormat; the time is in UTC.",
            ),
        ]
    )

    def __init__(self, properties: Mapping[str, Any], side: Side = VALUE) -> None:
        """Raises ConfigException, also for a pattern that is not valid."""
        super().__init__(properties, side)
        self._topic: Final[str] = self.settings["topic.format"]
        try:
            self._time: Final = DatePattern(self.settings["timestamp.format"])
        except DatePatternError as error:
            raise ConfigException(f"Invalid value for timestamp.format: {error}") from error

    def apply(self, record: Record) -> Record:
        """Return the record with the new topic; DataException if it has no time."""
        if record.timestamp is None:
            raise DataException(f"Timestamp missing on record of topic {record.topic}")
        try:
            time = self._time.format(time_at(record.timestamp))
        except (OverflowError, ValueError) as error:
            raise DataException(f"Timestamp is out of range: {record.timestamp}") from error
        # What stands for the topic is not looked through for the other variable.
        parts = (part.replace("${timestamp}", time) for part in self._topic.split("${topic}"))
        return changed(record, topic=record.topic.join(parts))
