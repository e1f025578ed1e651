"""Avro schemas, and values to Avro's binary encoding and back, by fastavro.

Values are plain: a schema's logical types say what a number or a text stands for, and whoever reads
may want to know, but here a timestamp is a number of milliseconds and a decimal is bytes. So
whatever is read can be written again, and no bytes of a record are a date that Python lacks.

fastavro's compiled reader takes any bytes, but for three things: what contains itself recurses in C
until the stack is full, arrays of items without bytes are as long as four bytes say, and what comes
behind the value is ignored. The first is read by fastavro's Python code, the second is refused with
the schema (waylog/serialization/avro_limits.py), the third is checked.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro._read_py import schemaless_reader as python_reader

from waylog.malformed import MALFORMED
from waylog.serialization.avro_limits import SCHEMA_BYTES_MAX, check_nesting, extent_of
from waylog.serialization.serializer import SerializationError

_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)


class AvroSchema:
    """A schema that can be read and written. It never changes."""

    __slots__ = ("_parsed", "json", "name", "recursive", "referenced")

    #: See RecordSchema (waylog/serialization/registered_schemas.py).
    place: Final = b""

    def __init__(self, text: str | bytes, referenced: Mapping[str, Any] | None = None) -> None:
        """`text` is the schema's JSON, `referenced` JSON of named types that it uses, by name.

        Raises SerializationError for what is no schema, and for one that is not read.
        """
        #: The schema's JSON, logical types and other attributes included.
        self.json: Final = decoded_schema(text)
        #: The JSON of named types that it uses, by name.
        self.referenced: Final[Mapping[str, Any]] = dict(referenced or {})
        # A referenced schema is parsed once, at its first use, as if it stood there.
        types: dict[str, Any] = {}
        try:
            for each in self.referenced.values():
                parse_schema(_plain(each), named_schemas=types)
            self._parsed: Final = parse_schema(_plain(self.json), named_schemas=types)
            extent = extent_of(self._parsed, types)
        except SerializationError:
            raise
        except Exception as error:  # fastavro raises what Python does for JSON of another form
            raise SerializationError(f"no Avro schema: {_text_of(error)}") from error
        #: Whether a value may contain its like.
        self.recursive: Final = extent.recursive
        #: The full name of a named type, else the type.
        self.name: Final = _name_of(self._parsed)

    def read(self, data: bytes, reader: AvroSchema | None = None) -> Any:
        """Return the value of bytes that were written with this schema, as `reader` sees it.

        `reader` may be older or newer: fields are matched by name, numbers promoted, missing fields
        have their default (Avro 1.12, schema resolution). Records are dicts. Raises
        SerializationError; takes time and memory in proportion to the bytes.
        """
        stream = io.BytesIO(data)
        recursive = self.recursive or (reader is not None and reader.recursive)
        read = python_reader if recursive else schemaless_reader
        try:
            value = read(stream, self._parsed, None if reader is None else reader._parsed)
        except Exception as error:  # see above
            raise SerializationError(f"the bytes are no {self.name}: {_text_of(error)}") from error
        if (left := len(data) - stream.tell()) != 0:
            raise SerializationError(f"the bytes are no {self.name}: {left} bytes follow it")
        return value

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value; raises SerializationError if it is not of the schema."""
        if self.recursive:
            # fastavro's validation of unions recurses in C, too.
            check_nesting(value, "the value")
        stream = io.BytesIO()
        try:
            schemaless_writer(stream, self._parsed, value)
        except Exception as error:  # see above
            raise SerializationError(f"the value is no {self.name}: {_text_of(error)}") from error
        return stream.getvalue()


def decoded_schema(text: str | bytes) -> Any:
    """Return the JSON of a schema's text; raises SerializationError."""
    if len(text) > SCHEMA_BYTES_MAX:
        raise SerializationError(f"the schema is longer than {SCHEMA_BYTES_MAX} bytes")
    try:
        json = msgspec.json.decode(text)
    except MALFORMED as error:
        if isinstance(text, str) and text in _PRIMITIVES:
            return text  # the Java clients register primitive types so
        raise SerializationError(f"the schema is no JSON: {error}") from error
    check_nesting(json)
    return json


def _plain(json: Any) -> Any:
    """Return a schema's JSON without logical types, which fastavro would apply."""
    if isinstance(json, list):
        return [_plain(each) for each in json]
    if not isinstance(json, dict):
        return json
    # A default is a value, in which the word means nothing.
    return {
        name: each if name == "default" else _plain(each)
        for name, each in json.items()
        if name != "logicalType"
    }


def _name_of(parsed: Any) -> str:
    if isinstance(parsed, list):
        return "union"
    if isinstance(parsed, Mapping):
        name: str = parsed.get("name") or parsed["type"]
        return name
    return str(parsed)


def _text_of(error: Exception) -> str:
    return str(error)[:200] or type(error).__name__
