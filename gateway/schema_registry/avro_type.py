"""Schemas of Avro, parsed and compared by Apache's package.

A schema that is registered as Avro can also be read by waylog.serialization: what that refuses,
because its values could be far larger than their bytes, is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import avro.compatibility
import avro.name
import avro.schema
import msgspec
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityType,
)

from gateway.schema_registry.errors import invalid_schema
from gateway.schema_registry.parsed import ParsedSchema, Referenced
from gateway.schema_registry.records import Reference
from waylog.malformed import MALFORMED
from waylog.serialization.avro_schema import AvroSchema, decoded_schema
from waylog.serialization.schema_types import AVRO
from waylog.serialization.serializer import SerializationError

_encode: Final = msgspec.json.Encoder().encode
_sorted_encode: Final = msgspec.json.Encoder(order="sorted").encode
_PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)


def parse_avro(
    text: str, references: Sequence[Reference], referenced: Sequence[Referenced], *, normalize: bool
) -> ParsedSchema:
    """Return a schema; `normalize` sorts attributes. Raises RegistryError."""
    try:
        known = {each.name: decoded_schema(each.text) for each in referenced}
        json = AvroSchema(text, known).json
        names = avro.name.Names()
        for each in known.values():
            avro.schema.make_avsc_object(each, names)
        schema = avro.schema.make_avsc_object(json, names)
        kept = (_sorted_encode if normalize else _encode)(
            _canonical(schema.to_json(_named_elsewhere(names, known)), "")
        )
    except SerializationError as error:
        raise invalid_schema(str(error)) from error
    except (avro.errors.AvroException, *MALFORMED, TypeError, KeyError, AttributeError) as error:
        raise invalid_schema(f"{str(error)[:500] or type(error).__name__}") from error
    return ParsedSchema(AVRO, kept.decode(), tuple(references), schema, _incompatibilities)


def _named_elsewhere(names: avro.name.Names, known: Mapping[str, Any]) -> avro.name.Names:
    """Return the names of types that are written by name alone, being defined in references."""
    elsewhere = avro.name.Names()
    if known:
        for each in known.values():
            avro.schema.make_avsc_object(each, elsewhere)
    return elsewhere


def _canonical(json: Any, namespace: str) -> Any:
    """Return a schema's JSON with its members in the order in which Java's Avro writes them.

    Names are as short as the namespace around them allows.
    """
    if isinstance(json, str):
        return _short(json, namespace)
    if isinstance(json, list):
        return [_canonical(each, namespace) for each in json]
    kind = json["type"]
    if not isinstance(kind, str):
        rest = {name: each for name, each in json.items() if name != "type"}
        return {"type": _canonical(kind, namespace), **rest}
    members: dict[str, Any] = {"type": kind}
    own = namespace
    if "name" in json:
        own = json.get("namespace", "")
        members["name"] = json["name"]
        if own != namespace:
            members["namespace"] = own
    for name in ("doc", "size", "symbols"):
        if name in json:
            members[name] = json[name]
    if "fields" in json:
        members["fields"] = [_canonical_field(each, own) for each in json["fields"]]
    for name in ("items", "values"):
        if kind == {"items": "array", "values": "map"}[name]:
            members[name] = _canonical(json[name], own)
    done = {*members, "namespace"}
    return members | {name: each for name, each in json.items() if name not in done}


def _canonical_field(json: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    field = {"name": json["name"], "type": _canonical(json["type"], namespace)}
    for name in ("doc", "default"):
        if name in json:
            field[name] = json[name]
    return field | {name: each for name, each in json.items() if name not in field}


def _short(name: str, namespace: str) -> str:
    short = name.removeprefix(f"{namespace}.") if namespace else name
    return name if "." in short or short in _PRIMITIVES else short


def _incompatibilities(reader: avro.schema.Schema, writer: avro.schema.Schema) -> list[str]:
    try:
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        result = checker.get_compatibility(reader, writer)
    except RecursionError as error:
        raise invalid_schema("it is nested too deeply to be compared") from error
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    kinds = sorted({each.name.upper() for each in result.incompatibilities})
    where = ", ".join(sorted(result.locations))
    what = "; ".join(sorted(result.messages))
    return [
        f"{{errorType:'{kind}', description:'{_DESCRIPTIONS[kind]} at {where}', "
        f"additionalInfo:'{what}'}}"
        for kind in kinds
    ]


_DESCRIPTIONS: Final = {
    "NAME_MISMATCH": "the name of the type differs",
    "FIXED_SIZE_MISMATCH": "the size differs",
    "MISSING_ENUM_SYMBOLS": "the reader lacks symbols of the writer",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "a field that the writer lacks has no default value",
    "TYPE_MISMATCH": "the types differ",
    "MISSING_UNION_BRANCH": "the reader lacks a branch of the writer's union",
}
