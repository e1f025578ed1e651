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
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.validation import ValidationError, validate

from waylog.malformed import MALFORMED
from waylog.serialization.avro_limits import check_nesting, check_size, extent_of
from waylog.serialization.json_numbers import NON_FINITE
from waylog.serialization.schema_types import AVRO
from waylog.serialization.serializer import NamedValue, SerializationError

_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_TEXT_MAX: Final = 200


class AvroSchema:
    """A schema that can be read and written. It never changes."""

    __slots__ = ("_parsed", "_types", "json", "name", "recursive", "referenced")

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
        self._types: Final[Mapping[str, Any]] = types
        try:
            for each in self.referenced.values():
                parse_schema(_plain(each), named_schemas=types)
            self._parsed: Final = parse_schema(_plain(self.json), named_schemas=types)
            extent = extent_of(self._parsed, types)
        except SerializationError:
            raise
        except Exception as error:  # fastavro raises what Python does for JSON of another form
            raise SerializationError(f"no Avro schema: {_fault_text(error, self.json)}") from error
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

    def read_named(self, data: bytes, reader: AvroSchema | None = None) -> NamedValue:
        """Return the same with the name of what it is seen as; raises SerializationError."""
        return NamedValue(self.read(data, reader), AVRO, (reader or self).name)

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value; raises SerializationError if it is not of the schema.

        NaN and infinite numbers may be texts, as JSON has them, where the schema has a number.
        """
        if self.recursive:
            # fastavro's validation of unions recurses in C, too.
            check_nesting(value, "the value")
        try:
            return self._written(value)
        except Exception:  # see above
            return self._written_with_numbers(value)

    def _written_with_numbers(self, value: Any) -> bytes:
        try:
            value = _with_numbers(value, self._parsed, self._types)
            return self._written(value)
        except Exception as error:  # see above
            text = self._difference(value) or _text_of(error)
            raise SerializationError(f"the value is no {self.name}: {text}") from error

    def _written(self, value: Any) -> bytes:
        stream = io.BytesIO()
        schemaless_writer(stream, self._parsed, value)
        return stream.getvalue()

    def _difference(self, value: Any) -> str:
        """Return where a value is not of the schema, empty if that is not known."""
        try:
            validate(value, self._parsed)
        except Exception as error:  # Python's own, too, for a value of any form
            errors = error.errors if isinstance(error, ValidationError) else ()
            return "; ".join(str(each) for each in errors)[:_TEXT_MAX]
        return ""


def decoded_schema(text: str | bytes) -> Any:
    """Return the JSON of a schema's text; raises SerializationError."""
    check_size(text)
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


def _with_numbers(value: Any, schema: Any, types: Mapping[str, Any]) -> Any:
    """Return a value with numbers for the texts of NaN and infinities, where numbers are due."""
    if isinstance(schema, list):
        branch = _branch(value, schema, types)
        return value if branch is None else _with_numbers(value, branch, types)
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, (list, Mapping)):
        return _with_numbers(value, kind, types)
    if kind in types:
        return _with_numbers(value, types[kind], types)
    if kind in ("float", "double"):
        return NON_FINITE.get(value, value) if isinstance(value, str) else value
    if kind == "array" and isinstance(value, list):
        return [_with_numbers(each, schema["items"], types) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _with_numbers(each, schema["values"], types) for name, each in value.items()}
    if kind in ("record", "error") and isinstance(value, dict):
        of_fields = {
            each["name"]: _with_numbers(value[each["name"]], each["type"], types)
            for each in schema["fields"]
            if each["name"] in value
        }
        return value | of_fields
    return value


def _branch(value: Any, union: list[Any], types: Mapping[str, Any]) -> Any:
    """Return the branch of a union in which texts may stand for numbers, None if none is."""
    by_kind: dict[str, Any] = {}
    for each in union:
        branch = types.get(each, each) if isinstance(each, str) else each
        kind = branch["type"] if isinstance(branch, Mapping) else branch
        names = {field["name"] for field in branch["fields"]} if kind == "record" else set()
        if kind != "record" or (isinstance(value, dict) and value.keys() <= names):
            by_kind.setdefault(kind, branch)
    if isinstance(value, str):
        may_be_text = not by_kind.keys().isdisjoint(("string", "enum"))
        return None if may_be_text else by_kind.get("double", by_kind.get("float"))
    if isinstance(value, list):
        return by_kind.get("array")
    return by_kind.get("record", by_kind.get("map"))


def _text_of(error: Exception) -> str:
    return str(error)[:_TEXT_MAX] or type(error).__name__


def _fault_text(error: Exception, json: Any) -> str:
    """Return why something is no schema, in words that are not Python's."""
    if isinstance(error, UnknownType):
        return f"there is no type {_shown(error.name)}"
    if isinstance(error, SchemaParseException):
        return _text_of(error)
    return _fault(json, "the schema") or "it has not the form of a schema"


def _fault(json: Any, place: str) -> str | None:
    """Return the first place that has not the form of a schema, None if there is none."""
    if isinstance(json, str):
        return None
    if isinstance(json, list):
        return next(
            filter(None, (_fault(each, f"{place}[{i}]") for i, each in enumerate(json))), None
        )
    if not isinstance(json, dict) or "type" not in json:
        return (
            f"{place} is {_shown(json)}: the name of a type, an object with `type`, or an array of "
            "types is expected"
        )
    kind = json["type"]
    if not isinstance(kind, str):
        return _fault(kind, f"{place}.type")
    for name, form in _MEMBERS.get(kind, {}).items():
        if not isinstance(json.get(name), form):
            return f"{place} has no valid `{name}`, which a type {kind} needs"
    parts = [(json[name], f"{place}.{name}") for name in ("items", "values") if name in json]
    for each in json.get("fields", ()):
        if isinstance(each, dict) and "type" in each:
            parts.append((each["type"], f"{place}.{each.get('name')}"))
    return next(filter(None, (_fault(*each) for each in parts)), None)


def _shown(json: Any) -> str:
    return json if isinstance(json, str) else msgspec.json.encode(json).decode()[:60]


_MEMBERS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "record": {"name": str, "fields": list},
    "error": {"name": str, "fields": list},
    "enum": {"name": str, "symbols": list},
    "fixed": {"name": str, "size": int},
    "array": {"items": (str, list, dict)},
    "map": {"values": (str, list, dict)},
}
