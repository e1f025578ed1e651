"""Texts: what Kafka Connect's StringConverter does."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from consumers.connect.configuration.definitions import ConfigDef, ConfigKey, ConfigType, Importance
from consumers.connect.configuration.exceptions import invalid_value
from consumers.connect.converters.converter import CONVERTER_TYPE, AddedHeaders, Converter
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import OPTIONAL_STRING, Schema, SchemaAndValue
from consumers.connect.data.value_text import java_text
from waylog.serialization.serializer import NO_HEADERS, RecordHeaders

_ENCODING: Final = "converter.encoding"


def _validate_encoding(name: str, value: Any) -> None:
    try:
        # Codecs such as base64 are none of texts.
        "".encode(codecs.lookup(value).name)
    except (LookupError, TypeError, ValueError) as error:
        raise invalid_value(name, value, "There is no such character set") from error


class StringConverter(Converter):
    """The text of any value, by `java_text`; bytes are read as a text.

    Bytes that are none of the character set become U+FFFD, as Java reads them.
    """

    kafka_name = "org.apache.kafka.connect.storage.StringConverter"
    config: ClassVar[ConfigDef] = ConfigDef(
        [
            CONVERTER_TYPE,
            ConfigKey(
                name=_ENCODING,
                type=ConfigType.STRING,
                default="UTF-8",
                validator=_validate_encoding,
                importance=Importance.HIGH,
                documentation="The character set of the bytes.",
            ),
        ]
    )

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigException."""
        super().__init__(properties)
        # Names that Python does not have to look up are decoded faster.
        self._encoding: Final = codecs.lookup(self.settings[_ENCODING]).name

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the text's bytes."""
        if value is None:
            return None
        text = value if isinstance(value, str) else java_text(value, schema)
        try:
            return text.encode(self._encoding, "replace")
        except UnicodeError as error:
            raise DataException(f"Failed to serialize to a string: {error}") from error

    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the text."""
        if data is None:
            return SchemaAndValue(OPTIONAL_STRING, None)
        try:
            return SchemaAndValue(OPTIONAL_STRING, data.decode(self._encoding, "replace"))
        except UnicodeError as error:
            raise DataException(f"Failed to deserialize string: {error}") from error
