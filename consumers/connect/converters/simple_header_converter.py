"""Headers as texts whose form says their type: Kafka Connect's default for headers (KIP-145)."""

from __future__ import annotations

from typing import Any

from consumers.connect.converters.converter import HeaderConverter
from consumers.connect.data.schemas import BYTES, NULL, Schema, SchemaAndValue
from consumers.connect.data.text_parser import parse_text
from consumers.connect.data.value_text import header_text


class SimpleHeaderConverter(HeaderConverter):
    """42 is INT8, true BOOLEAN, [1,2] an array; see `consumers/connect/data/text_parser.py`."""

    kafka_name = "org.apache.kafka.connect.storage.SimpleHeaderConverter"

    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Any
    ) -> bytes | None:
        """Return the value's text."""
        if value is None:
            return None
        return header_text(value, schema).encode("utf-8", "replace")

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return the value that the text stands for; bytes that are no UTF-8 stay bytes.

        Kafka reads those as a text, and loses them.
        """
        if data is None:
            return NULL
        try:
            return parse_text(data.decode())
        except UnicodeDecodeError:
            return SchemaAndValue(BYTES, data)
