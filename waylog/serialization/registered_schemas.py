"""Schemas of a registry, of each of its types, as what reads and writes the bytes of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from waylog.extras import install_command, is_installed
from waylog.malformed import MALFORMED
from waylog.serialization.avro_schema import AvroSchema, decoded_schema
from waylog.serialization.schema_types import AVRO, JSON, PROTOBUF
from waylog.serialization.serializer import SerializationError


class RecordSchema(Protocol):
    """What a record's bytes behind the schema's id are read and written with."""

    @property
    def name(self) -> str:
        """The full name of what is written, for the names of subjects."""

    def read(self, data: bytes, reader: Any = None) -> Any:
        """Return the value, as `reader` (a schema of the same type) sees it.

        Raises SerializationError.
        """

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value; raises SerializationError."""


class JsonSchema:
    """A JSON Schema. Values are any JSON: whether they are valid is not looked at."""

    def __init__(self, text: str) -> None:
        """Raises SerializationError for what is no JSON."""
        json = decoded_schema(text)
        title = json.get("title") if isinstance(json, dict) else None
        #: The schema's title.
        self.name: Final = title if isinstance(title, str) and title else "schema"

    def read(self, data: bytes, reader: Any = None) -> Any:
        """See RecordSchema."""
        try:
            return msgspec.json.decode(data)
        except MALFORMED as error:
            raise SerializationError(f"the bytes are no JSON: {error}") from error

    def write(self, value: Any) -> bytes:
        """See RecordSchema."""
        try:
            return msgspec.json.encode(value)
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
        return JsonSchema(text)
    if schema_type == PROTOBUF:
        if not is_installed("protobuf"):
            raise SerializationError(f"Protobuf needs more packages: {install_command('protobuf')}")
        from waylog.serialization.protobuf_schema import ProtobufSchema

        return ProtobufSchema(text, referenced, message=message)
    raise SerializationError(f"the schema is of the unknown type {schema_type[:40]}")
