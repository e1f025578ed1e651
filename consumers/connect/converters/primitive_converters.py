"""Numbers, booleans and bytes, as Kafka's own serialisers write them: big-endian, fixed size."""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Final

from consumers.connect.converters.converter import AddedHeaders, Converter
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import (
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    Schema,
    SchemaAndValue,
    Type,
)
from waylog.serialization.serializer import NO_HEADERS, RecordHeaders


class _NumberConverter(Converter):
    """Numbers of one type."""

    type_name: ClassVar[str]
    schema: ClassVar[Schema]
    layout: ClassVar[struct.Struct]
    python_type: ClassVar[type]

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the number's bytes."""
        if value is None:
            return None
        if not isinstance(value, self.python_type) or isinstance(value, bool):
            kind = type(value).__name__
            raise DataException(f"Failed to serialize to {self.type_name} (was {kind})")
        try:
            return self.layout.pack(value)
        except (struct.error, OverflowError) as error:
            raise DataException(f"Failed to serialize to {self.type_name}: {error}") from error

    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the number."""
        if data is None:
            return SchemaAndValue(self.schema, None)
        if len(data) != self.layout.size:
            raise DataException(
                f"Failed to deserialize {self.type_name}: "
                f"size of data is {len(data)}, not {self.layout.size}"
            )
        return SchemaAndValue(self.schema, self.layout.unpack(data)[0])


class ShortConverter(_NumberConverter):
    """Integers of 16 bits."""

    kafka_name = "org.apache.kafka.connect.converters.ShortConverter"
    type_name = "short"
    schema = OPTIONAL_INT16
    layout = struct.Struct(">h")
    python_type = int


class IntegerConverter(_NumberConverter):
    """Integers of 32 bits."""

    kafka_name = "org.apache.kafka.connect.converters.IntegerConverter"
    type_name = "integer"
    schema = OPTIONAL_INT32
    layout = struct.Struct(">i")
    python_type = int


class LongConverter(_NumberConverter):
    """Integers of 64 bits."""

    kafka_name = "org.apache.kafka.connect.converters.LongConverter"
    type_name = "long"
    schema = OPTIONAL_INT64
    layout = struct.Struct(">q")
    python_type = int


class FloatConverter(_NumberConverter):
    """Floating-point numbers of 32 bits."""

    kafka_name = "org.apache.kafka.connect.converters.FloatConverter"
    type_name = "float"
    schema = OPTIONAL_FLOAT32
    layout = struct.Struct(">f")
    python_type = float


class DoubleConverter(_NumberConverter):
    """Floating-point numbers of 64 bits."""

    kafka_name = "org.apache.kafka.connect.converters.DoubleConverter"
    type_name = "double"
    schema = OPTIONAL_FLOAT64
    layout = struct.Struct(">d")
    python_type = float


_BOOLEANS: Final = {b"\x00": False, b"\x01": True}


class BooleanConverter(Converter):
    """One byte: 0 is false, 1 is true (KIP-907)."""

    kafka_name = "org.apache.kafka.connect.converters.BooleanConverter"

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the byte."""
        if schema is not None and schema.type is not Type.BOOLEAN:
            raise DataException(f"Invalid schema type for BooleanConverter: {schema.type}")
        if value is None:
            return None
        if not isinstance(value, bool):
            kind = type(value).__name__
            raise DataException(f"BooleanConverter is not compatible with objects of type {kind}")
        return b"\x01" if value else b"\x00"

    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the boolean."""
        if data is None:
            return SchemaAndValue(OPTIONAL_BOOLEAN, None)
        value = _BOOLEANS.get(bytes(data))
        if value is None:
            raise DataException(f"Failed to deserialize boolean: unexpected {len(data)} bytes")
        return SchemaAndValue(OPTIONAL_BOOLEAN, value)


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    kafka_name = "org.apache.kafka.connect.converters.ByteArrayConverter"

    def from_connect(
        self, topic: str, schema: Schema | None, value: Any, headers: AddedHeaders | None = None
    ) -> bytes | None:
        """Return the bytes."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {schema.type}")
        if value is not None and not isinstance(value, bytes):
            kind = type(value).__name__
            raise DataException(f"ByteArrayConverter is not compatible with objects of type {kind}")
        return value

    def to_connect(
        self, topic: str, data: bytes | None, headers: RecordHeaders = NO_HEADERS
    ) -> SchemaAndValue:
        """Return the bytes."""
        return SchemaAndValue(OPTIONAL_BYTES, data)
