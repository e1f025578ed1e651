"""Schemas of a registry, of each of its types, as what reads and writes the bytes of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from waylog.extras import install_command, is_installed
from waylog.malformed import MALFORMED
from waylog.serialization.avro_schema import AvroSchema, decoded_schema
from waylog.serialization.json_numbers import json_bytes
from waylog.serialization.schema_ids import Framed
from waylog.serialization.schema_types import AVRO, JSON, PROTOBUF
from waylog.serialization.serializer import NamedValue, SerializationError

#: Decimals are numbers, with all their digits.
_encoder: Final = msgspec.json.Encoder(decimal_format="number")


class RecordSchema(Protocol):
    """What a record's bytes behind the schema's id are read and written with."""

    @property
    def name(self) -> str:
        """The full name of what is written, for the names of subjects."""

    def read(self, data: bytes, reader: Any = None) -> Any:
        """Return the value, as `reader` (a schema of the same type) sees it.

        Raises SerializationError.
        """

    def read_named(self, data: bytes, reader: Any = None) -> NamedValue:
        """Return the same with its type and name, and with Python's own numbers and bytes.

        They are what other formats take; of Protobuf's JSON some are texts. Raises
        SerializationError.
        """

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value; raises SerializationError."""

    @property
    def place(self) -> bytes:
        """What the bytes of each value begin with: of Protobuf the place of their message."""


def read_framed(schema: RecordSchema, framed: Framed, reader: RecordSchema | None = None) -> Any:
    """Return the value of a record, as `reader` sees it; raises SerializationError."""
    return schema.read(_unframed(schema, framed, reader), reader)


def read_framed_named(
    schema: RecordSchema, framed: Framed, reader: RecordSchema | None = None
) -> NamedValue:
    """Return the same as `RecordSchema.read_named` does; raises SerializationError."""
    return schema.read_named(_unframed(schema, framed, reader), reader)


def _unframed(schema: RecordSchema, framed: Framed, reader: RecordSchema | None) -> bytes:
    if reader is not None and type(reader) is not type(schema):
        raise SerializationError("its schema is of another type than the one it is read with")
    if framed.place and not schema.place:
        raise SerializationError("the header that names the schema is too long")
    return framed.place + framed.payload


class JsonSchema:
    """A JSON Schema. Values are any JSON: whether they are valid is not looked at."""

    #: See RecordSchema.
    place: Final = b""

    def __init__(self, text: str, referenced: Mapping[str, str] | None = None) -> None:
        """`referenced` are the texts of schemas that it uses, by name.

        Raises SerializationError for what is no JSON.
        """
        #: The schema's JSON.
        self.json: Final = decoded_schema(text)
        #: The JSON of schemas that it uses, by name.
        self.referenced: Final[Mapping[str, Any]] = {
            name: decoded_schema(each) for name, each in (referenced or {}).items()
        }
        title = self.json.get("title") if isinstance(self.json, dict) else None
        #: The schema's title.
        self.name: Final = title if isinstance(title, str) and title else "schema"

    def read(self, data: bytes, reader: Any = None) -> Any:
        """See RecordSchema."""
        try:
            return msgspec.json.decode(data)
        except MALFORMED as error:
            raise SerializationError(f"the bytes are no JSON: {error}") from error

    def read_named(self, data: bytes, reader: JsonSchema | None = None) -> NamedValue:
        """See RecordSchema."""
        return NamedValue(self.read(data), JSON, (reader or self).name)

    def write(self, value: Any) -> bytes:
        """See RecordSchema."""
        try:
            return json_bytes(value, _encoder)
        except (*MALFORMED, TypeError) as error:
            raise SerializationError(f"the value has no JSON: {error}") from error


def record_schema(
    schema_type: str,
    text: str,
    referenced: Mapping[str, str] | None = None,
    *,
    message: str | None = None,
) -> RecordSchema:
    """Return a schema; `referenced` are the texts of all that it needs, by name.

    `message` is the one that is written, of a schema of Protobuf. Raises SerializationError.
    """
    if schema_type == AVRO:
        known = {name: decoded_schema(each) for name, each in (referenced or {}).items()}
        return AvroSchema(text, known)
    if schema_type == JSON:
        return JsonSchema(text, referenced)
    if schema_type == PROTOBUF:
        if not is_installed("protobuf"):
            raise SerializationError(f"Protobuf needs more packages: {install_command('protobuf')}")
        from waylog.serialization.protobuf_schema import ProtobufSchema

        return ProtobufSchema(text, referenced, message=message)
    raise SerializationError(f"the schema is of the unknown type {schema_type[:40]}")
