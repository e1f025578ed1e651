"""Predicates, which decide whether a transform is applied (KIP-585)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType
from consumers.connect.configuration.validators import all_of, non_empty, valid_regex
from consumers.connect.data.records import ConnectRecord
from consumers.connect.java.regular_expression import compile_java
from consumers.connect.transforms.transform import TOPICS_REMEMBERED
from waylog.bounded_cache import BoundedCache


class Predicate(ABC):
    """Is true or false of a record."""

    kafka_name: ClassVar[str]
    config: ClassVar[ConfigDef] = ConfigDef()

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """`properties` are those of the predicate, without prefix; raises ConfigException."""
        self.settings: Final = self.config.parse(properties)

    @abstractmethod
    def test(self, record: ConnectRecord) -> bool:
        """Return whether it is true of the record."""


class HasHeaderKey(Predicate):
    """True of records with such a header."""

    kafka_name = "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="name",
                type=ConfigType.STRING,
                validator=non_empty,
                documentation="Name of the header.",
            )
        ]
    )

    def test(self, record: ConnectRecord) -> bool:
        """Return whether a header has the name."""
        name = self.settings["name"]
        return any(header.key == name for header in record.headers)


class RecordIsTombstone(Predicate):
    """True of records without a value."""

    kafka_name = "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"

    def test(self, record: ConnectRecord) -> bool:
        """Return whether there is no value."""
        return record.value is None


class TopicNameMatches(Predicate):
    """True of records of topics whose whole name matches."""

    kafka_name = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            ConfigKey(
                name="pattern",
                type=ConfigType.STRING,
                validator=all_of(non_empty, valid_regex),
                documentation="A regular expression of Java's.",
            )
        ]
    )

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        self._pattern: Final = compile_java(self.settings["pattern"])
        self._topics: Final = BoundedCache(self._matches, TOPICS_REMEMBERED)

    def test(self, record: ConnectRecord) -> bool:
        """Return whether the topic's name matches."""
        return self._topics.get(record.topic)

    def _matches(self, topic: str) -> bool:
        return self._pattern.fullmatch(topic) is not None
