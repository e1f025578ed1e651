"""What a converter does: bytes of the log to values of Connect and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.validators import one_of, optional
from consumers.connect.data.schemas import Schema, SchemaAndValue
from waylog.serialization.serializer import NO_HEADERS, RecordHeaders

#: The headers of a record that is being written.
AddedHeaders = list[tuple[str, bytes | None]]

#: Kafka Connect sets it itself; it may also be written.
CONVERTER_TYPE: Final = ConfigKey(
    name="converter.type",
    type=ConfigType.STRING,
    default=None,
    validator=optional(one_of("key", "value", "header")),
    importance=Importance.LOW,
    documentation="What is converted: key, value or header.",
)


class HeaderConverter(ABC):
    """Converts values of headers. All methods raise DataException and nothing else."""

    #: The full name of the class in Kafka Connect.
    kafka_name: ClassVar[str]
    config: ClassVar[ConfigDef] = ConfigDef()

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """`properties` are those of the converter, without prefix; raises ConfigException."""
        self.settings: Final = self.config.parse(properties)

    @abstractmethod
    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the bytes of a header, None for a header without a value."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of a header."""


class Converter(HeaderConverter):
    """Converts keys and values of records, and headers in the same way."""

    config: ClassVar[ConfigDef] = ConfigDef([CONVERTER_TYPE])

    @abstractmethod
    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the bytes of a key or value, None for a record without.

        `headers` are those of the record; the converter may add to them (KIP-440).
        """

    @abstractmethod
    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the value of the bytes of a key or value; None is a tombstone.

        `headers` are those of the record.
        """

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the bytes of a header, as for a value."""
        return self.from_connect(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of a header, as for a value."""
        return self.to_connect(topic, data)
