"""Schemas and values of Avro as Connect's, as Confluent's AvroConverter reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from consumers.connect.converters import avro_names
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    DATE,
    TIME,
    TIMESTAMP,
    decimal_schema,
    logical_type_of,
)
from consumers.connect.data.schemas import STRING, Schema, Type
from consumers.connect.data.structs import Struct

Read = Callable[[Any], Any]

_TYPES: Final = {
    **{"int": Type.INT32, "long": Type.INT64, "float": Type.FLOAT32, "double": Type.FLOAT64},
    **{"boolean": Type.BOOLEAN, "string": Type.STRING, "bytes": Type.BYTES, "fixed": Type.BYTES},
    "enum": Type.STRING,
}
_LOGICAL: Final[dict[tuple[str, str], Schema]] = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
}
_SMALL: Final = {"int8": Type.INT8, "int16": Type.INT16}
_RECURSIVE: Final = "Connect has no schemas that contain themselves, as {} does"


class AvroReading(NamedTuple):
    """A schema of Connect, and what makes its values of Avro's."""

    schema: Schema
    read: Read


def avro_reading(json: Any, referenced: Mapping[str, Any] | None = None) -> AvroReading:
    """Return how an Avro schema (JSON) is read, with types that are defined elsewhere.

    Raises DataException for what Connect has no word for.
    """
    reader = _Reader()
    for each in (referenced or {}).values():
        reader.collect(each, "")
    reader.collect(json, "")
    return reader.of(json, "")


class _Reader:
    def __init__(self) -> None:
        #: Named types, with the namespace around them.
        self._named: Final[dict[str, tuple[Mapping[str, Any], str]]] = {}
        self._open: Final[list[str]] = []

    def collect(self, json: Any, namespace: str) -> None:
        """Note the named types of a schema."""
        if isinstance(json, list):
            for each in json:
                self.collect(each, namespace)
        elif isinstance(json, dict):
            own = namespace
            if json.get("type") in ("record", "enum", "fixed"):
                name = full_name(json, namespace)
                self._named[name] = (json, namespace)
                own = name.rpartition(".")[0]
            for each in json.get("fields", ()):
                self.collect(each["type"], own)
            for member in ("items", "values", "type"):
                if not isinstance(json.get(member), str):
                    self.collect(json.get(member), own)

    def of(self, json: Any, namespace: str) -> AvroReading:
        if isinstance(json, list):
            return self._union(json, namespace)
        if isinstance(json, str):
            if json in _TYPES:
                return AvroReading(Schema(_TYPES[json]), _as_it_is)
            return self._by_name(json, namespace)
        kind = json["type"]
        if not isinstance(kind, str):
            return self.of(kind, namespace)
        if kind == "record":
            return self._record(json, namespace)
        if kind == "array":
            return self._array(json, namespace)
        if kind == "map":
            schema, read = self.of(json["values"], namespace)
            found = Schema(Type.MAP, key_schema=STRING, value_schema=schema, **_metadata(json))
            return AvroReading(
                found, lambda value: {key: read(each) for key, each in value.items()}
            )
        if kind not in _TYPES:
            if kind == "null":
                raise DataException("Standalone null schemas are not supported by Connect")
            return self._by_name(kind, namespace)
        return self._scalar(json, kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroReading:
        if name == "null":
            raise DataException("Standalone null schemas are not supported by Connect")
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise DataException(f"The Avro schema does not define {name}")
        return self.of(*found)

    def _scalar(self, json: Mapping[str, Any], kind: str, namespace: str) -> AvroReading:
        members = _metadata(json)
        logical = json.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            schema = decimal_schema(_whole(json.get("scale", 0)))
            precision = _whole(json.get("precision", avro_names.PRECISION_DEFAULT))
            if precision != avro_names.PRECISION_DEFAULT:
                parameters = {**(schema.parameters or {}), avro_names.PRECISION: str(precision)}
                schema = schema.replace(parameters=parameters)
            schema = schema.replace(doc=members.get("doc"))
        elif (kind, logical) in _LOGICAL:
            schema = _LOGICAL[kind, str(logical)].replace(doc=members.get("doc"))
        elif kind == "enum":
            name = full_name(json, namespace)
            members["parameters"] = {
                **members.get("parameters", {}),
                avro_names.ENUM: name,
                **{f"{avro_names.ENUM}.{each}": each for each in json["symbols"]},
            }
            members.setdefault("name", name)
            schema = Schema(Type.STRING, **members)
        else:
            if kind == "fixed":
                members.setdefault("name", full_name(json, namespace))
            type_ = _SMALL.get(str(json.get(avro_names.TYPE)), _TYPES[kind])
            schema = Schema(type_ if kind == "int" else _TYPES[kind], **members)
        known = logical_type_of(schema)
        if known is None:
            return AvroReading(schema, _as_it_is)
        return AvroReading(schema, lambda value: known.from_plain(schema, value))

    def _array(self, json: Mapping[str, Any], namespace: str) -> AvroReading:
        items = json["items"]
        if (
            isinstance(items, dict)
            and items.get("type") == "record"
            and _is_entry(items, namespace)
        ):
            return self._entries(json, items, namespace)
        schema, read = self.of(items, namespace)
        found = Schema(Type.ARRAY, value_schema=schema, **_metadata(json))
        return AvroReading(found, lambda value: [read(each) for each in value])

    def _entries(
        self, json: Mapping[str, Any], entry: Mapping[str, Any], namespace: str
    ) -> AvroReading:
        name = full_name(entry, namespace)
        own = name.rpartition(".")[0]
        types = {field["name"]: field["type"] for field in entry["fields"]}
        keys, read_key = self.of(types["key"], own)
        values, read_value = self.of(types["value"], own)
        members = _metadata(json)
        if name != avro_names.MAP_ENTRY:
            members.setdefault("name", name)
        found = Schema(Type.MAP, key_schema=keys, value_schema=values, **members)

        def read_entries(value: Any) -> Any:
            entries: dict[Any, Any] = {}
            for each in value:
                key = read_key(each["key"])
                if isinstance(key, (list, dict, Struct)):
                    raise DataException(
                        "Arrays, maps and structs as keys of maps are not supported"
                    )
                entries[key] = read_value(each["value"])
            return entries

        return AvroReading(found, read_entries)

    def _record(self, json: Mapping[str, Any], namespace: str) -> AvroReading:
        name = full_name(json, namespace)
        if name in self._open:
            raise DataException(_RECURSIVE.format(name))
        self._open.append(name)
        own = name.rpartition(".")[0]
        fields: list[tuple[str, Schema]] = []
        reads: list[tuple[str, Read]] = []
        for field in json["fields"]:
            schema, read = self.of(field["type"], own)
            if "default" in field and field["default"] is not None:
                schema = schema.replace(default=read(_of_default(field["default"], schema)))
            if field.get("doc") is not None and schema.doc is None:
                schema = schema.replace(doc=field["doc"])
            fields.append((field["name"], schema))
            reads.append((field["name"], read))
        self._open.pop()
        members = _metadata(json)
        if name != avro_names.DEFAULT_RECORD:
            members.setdefault("name", name)
        if json.get("doc") is not None:
            members.setdefault("doc", json["doc"])
        found = Schema(Type.STRUCT, fields=fields, **members)
        return AvroReading(
            found, lambda value: Struct.of(found, [read(value[name]) for name, read in reads])
        )

    def _union(self, json: list[Any], namespace: str) -> AvroReading:
        branches = [each for each in json if each != "null"]
        if not branches:
            raise DataException("Standalone null schemas are not supported by Connect")
        if len(branches) > 1:
            raise DataException(
                "Unions of several types are not supported, only those of null and one type"
            )
        schema, read = self.of(branches[0], namespace)
        if len(branches) == len(json):
            return AvroReading(schema, read)
        return AvroReading(
            schema.replace(optional=True), lambda value: None if value is None else read(value)
        )


def full_name(json: Mapping[str, Any], namespace: str) -> str:
    """Return the full name of a named type."""
    name = str(json["name"])
    if "." in name:
        return name
    around = json.get("namespace", namespace)
    return f"{around}.{name}" if around else name


def _is_entry(json: Mapping[str, Any], namespace: str) -> bool:
    return (
        json.get("connect.internal.type") == "MapEntry"
        or full_name(json, namespace) == avro_names.MAP_ENTRY
    ) and [each["name"] for each in json["fields"]] == ["key", "value"]


def _metadata(json: Mapping[str, Any]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for member, attribute, kind in (
        ("name", avro_names.NAME, str),
        ("doc", avro_names.DOC, str),
        ("version", avro_names.VERSION, int),
    ):
        value = json.get(attribute)
        if isinstance(value, kind) and not isinstance(value, bool):
            members[member] = value
    parameters = json.get(avro_names.PARAMETERS)
    if isinstance(parameters, dict) and all(isinstance(each, str) for each in parameters.values()):
        members["parameters"] = parameters
    return members


def _of_default(default: Any, schema: Schema) -> Any:
    if schema.type is Type.BYTES and isinstance(default, str):
        return default.encode("iso-8859-1", "replace")
    if schema.type in (Type.FLOAT32, Type.FLOAT64) and isinstance(default, int):
        return float(default)
    return default


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataException(f"A decimal's {value!r} is no whole number")
    return value


def _as_it_is(value: Any) -> Any:
    return value
