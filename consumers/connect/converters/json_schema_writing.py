"""Connect's schemas as JSON Schemas, and values as JSON, as Confluent's JsonSchemaConverter has it.

Values are those of JsonConverter but for two: maps whose keys are no texts are arrays of objects
with `key` and `value`, and a struct that stands for alternatives is the one that it has.
"""

from __future__ import annotations

from typing import Any, Final

from consumers.connect.converters import json_schema_names
from consumers.connect.converters.json_values import Convert, JsonValues
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import DECIMAL_NAME, Schema, Type
from consumers.connect.data.structs import Struct

_TYPES: Final = {
    **dict.fromkeys((Type.INT8, Type.INT16, Type.INT32, Type.INT64), "integer"),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), "number"),
    **{Type.BOOLEAN: "boolean", Type.STRING: "string", Type.BYTES: "string"},
}
#: What JSON Schema tells by itself.
_PLAIN: Final = frozenset((Type.BOOLEAN, Type.STRING))


class JsonSchemaValues(JsonValues):
    """Makes the functions that read and write values by a JSON Schema."""

    def _map_writer(self, schema: Schema) -> Convert:
        if is_object(schema):
            return super()._map_writer(schema)
        write_key, write_value = (self.writer(each) for each in key_and_value(schema))

        def write_entries(value: Any) -> Any:
            if not isinstance(value, dict):
                raise DataException(f"Invalid type for MAP: {type(value).__name__}")
            return [
                {"key": write_key(key), "value": write_value(each)} for key, each in value.items()
            ]

        return write_entries

    def _struct_writer(self, schema: Schema) -> Convert:
        if not is_union(schema):
            return super()._struct_writer(schema)
        writes = [self.writer(field.schema) for field in schema.fields]

        def write_union(value: Any) -> Any:
            if not isinstance(value, Struct) or not schema.is_same_struct(value.schema):
                raise DataException("Mismatching schema.")
            for write, each in zip(writes, value.values, strict=True):
                if each is not None:
                    return write(each)
            raise DataException("None of the alternatives has a value")

        return write_union

    def _map_reader(self, schema: Schema) -> Convert:
        if is_object(schema):
            return super()._map_reader(schema)
        read_key, read_value = (self.reader(each) for each in key_and_value(schema))

        def read_entries(json: Any) -> Any:
            if not isinstance(json, list):
                raise DataException(
                    "Maps with non-string fields should be encoded as JSON array of objects"
                )
            found: dict[Any, Any] = {}
            for entry in json:
                if not isinstance(entry, dict) or not entry.keys() <= {"key", "value"}:
                    raise DataException("Found an invalid map entry: key and value are expected")
                key = read_key(entry.get("key"))
                if isinstance(key, (list, dict, Struct)):
                    raise DataException(
                        "Arrays, maps and structs as keys of maps are not supported"
                    )
                found[key] = read_value(entry.get("value"))
            return found

        return read_entries

    def _struct_reader(self, schema: Schema) -> Convert:
        if not is_union(schema):
            return super()._struct_reader(schema)
        alternatives = [(field.schema, self.reader(field.schema)) for field in schema.fields]

        def read_union(json: Any) -> Any:
            values: list[Any] = [None] * len(alternatives)
            for index, (alternative, read) in enumerate(alternatives):
                if _may_be(alternative, json):
                    values[index] = read(json)
                    return Struct.of(schema, values)
            raise DataException("Did not find matching oneof field for the value")

        return read_union


def _may_be(schema: Schema, json: Any) -> bool:
    """Tell whether JSON has the form of an alternative; the first one that has it is taken."""
    if schema.type is Type.STRUCT:
        return isinstance(json, dict) and json.keys() <= schema.fields_by_name.keys()
    if schema.type is Type.MAP:
        return isinstance(json, dict if is_object(schema) else list)
    if isinstance(json, bool):
        return schema.type is Type.BOOLEAN
    if isinstance(json, str):
        symbols = symbols_of(schema)
        return schema.type is Type.BYTES or (
            schema.type is Type.STRING and (symbols is None or json in symbols)
        )
    if isinstance(json, list):
        return schema.type is Type.ARRAY
    is_whole = isinstance(json, int)
    is_number = is_whole or not isinstance(json, dict)
    if schema.type is Type.BYTES:
        return schema.name == DECIMAL_NAME and is_number
    kind = _TYPES.get(schema.type)
    return (kind == "number" and is_number) or (kind == "integer" and is_whole)


def is_object(schema: Schema) -> bool:
    """Tell whether a map is a JSON object: its keys are texts."""
    keys = schema.key_schema
    return keys is not None and keys.type is Type.STRING and not keys.optional


def is_union(schema: Schema) -> bool:
    """Tell whether a struct stands for alternatives."""
    return schema.name == json_schema_names.ONE_OF


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """Return the schemas of a map; raises DataException if it has none."""
    if schema.key_schema is None or schema.value_schema is None:
        raise DataException("A map without schemas of its keys and values has no JSON Schema")
    return schema.key_schema, schema.value_schema


def symbols_of(schema: Schema) -> list[str] | None:
    """Return the values of an enum, None for other schemas."""
    parameters = schema.parameters or {}
    if json_schema_names.ENUM not in parameters:
        return None
    prefix = f"{json_schema_names.ENUM}."
    return [name.removeprefix(prefix) for name in parameters if name.startswith(prefix)]


class JsonSchemaWriter:
    """Makes JSON Schemas."""

    def __init__(self, values: JsonSchemaValues, *, numeric: bool, open_objects: bool) -> None:
        """`numeric`: decimals are numbers; `open_objects`: objects may have other properties."""
        self._values: Final = values
        self._numeric: Final = numeric
        self._open: Final = open_objects

    def of(self, schema: Schema, index: int | None = None) -> dict[str, Any]:
        """Return the JSON Schema of a schema; raises DataException for what it cannot say.

        `index` is the place in a struct, which JSON does not keep.
        """
        more = {} if index is None else {json_schema_names.INDEX: index}
        if is_union(schema) and schema.type is Type.STRUCT:
            null = [{"type": "null"}] if schema.optional else []
            alternatives = [self._required(field.schema) for field in schema.fields]
            places = [{json_schema_names.INDEX: field.index} for field in schema.fields]
            return {
                "oneOf": [
                    *null, *(one | place for one, place in zip(alternatives, places, strict=True))
                ],
                **more,
            }  # fmt: skip
        if schema.optional:
            return {"oneOf": [{"type": "null"}, self._required(schema)], **more}
        return self._required(schema) | more

    def _required(self, schema: Schema) -> dict[str, Any]:
        found = self._form(schema)
        if schema.name is not None:
            found["title"] = schema.name
        if schema.version is not None:
            found[json_schema_names.VERSION] = schema.version
        if schema.doc is not None:
            found["description"] = schema.doc
        parameters = {
            name: text
            for name, text in (schema.parameters or {}).items()
            if not name.startswith(json_schema_names.NAMESPACE)
        }
        if parameters:
            found[json_schema_names.PARAMETERS] = parameters
        if schema.default is not None:
            found["default"] = self._values.writer(schema)(schema.default)
        return found

    def _form(self, schema: Schema) -> dict[str, Any]:
        if schema.type is Type.STRUCT:
            if is_union(schema):
                return self.of(schema.replace(optional=False))
            found: dict[str, Any] = {
                "type": "object",
                "properties": {
                    field.name: self.of(field.schema, field.index) for field in schema.fields
                },
            }
            return found if self._open else found | {"additionalProperties": False}
        if schema.type is Type.ARRAY:
            if schema.value_schema is None:
                raise DataException("An array without a schema of its items has no JSON Schema")
            return {"type": "array", "items": self.of(schema.value_schema)}
        if schema.type is Type.MAP:
            return self._map(schema) | {json_schema_names.TYPE: json_schema_names.MAP}
        symbols = symbols_of(schema) if schema.type is Type.STRING else None
        if symbols is not None:
            return {"enum": symbols}
        kind = _TYPES[schema.type]
        if schema.name == DECIMAL_NAME and schema.type is Type.BYTES and self._numeric:
            kind = "number"
        plain = {"type": kind}
        if schema.type in _PLAIN:
            return plain
        return plain | {json_schema_names.TYPE: schema.type.value}

    def _map(self, schema: Schema) -> dict[str, Any]:
        keys, values = key_and_value(schema)
        if is_object(schema):
            return {"type": "object", "additionalProperties": self.of(values)}
        entry = {"key": self.of(keys, 0), "value": self.of(values, 1)}
        return {"type": "array", "items": {"type": "object", "properties": entry}}
