"""Schemas as JSON, as JsonConverter writes them: {"type":"int32","optional":false}."""

from __future__ import annotations

from typing import Any, Final

from consumers.connect.converters.json_values import JsonValues
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import Schema, Type

#: JSON calls these two otherwise.
_NAMES: Final = {type_: type_.value for type_ in Type} | {
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
}
_TYPES: Final = {name: type_ for type_, name in _NAMES.items()}


def schema_to_json(schema: Schema, values: JsonValues) -> dict[str, Any]:
    """Return a schema as a JSON object; raises DataException for a default that has no JSON."""
    json: dict[str, Any] = {"type": _NAMES[schema.type]}
    if schema.type is Type.ARRAY:
        json["items"] = _part(schema.value_schema, values)
    elif schema.type is Type.MAP:
        json["keys"] = _part(schema.key_schema, values)
        json["values"] = _part(schema.value_schema, values)
    elif schema.type is Type.STRUCT:
        json["fields"] = [
            schema_to_json(field.schema, values) | {"field": field.name} for field in schema.fields
        ]
    json["optional"] = schema.optional
    if schema.name is not None:
        json["name"] = schema.name
    if schema.version is not None:
        json["version"] = schema.version
    if schema.doc is not None:
        json["doc"] = schema.doc
    if schema.parameters is not None:
        json["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        json["default"] = values.writer(schema)(schema.default)
    return json


def _part(schema: Schema | None, values: JsonValues) -> dict[str, Any] | None:
    return None if schema is None else schema_to_json(schema, values)


def schema_from_json(json: Any, values: JsonValues) -> Schema | None:
    """Return the schema of a JSON object, None for null; raises DataException."""
    if json is None:
        return None
    name = json.get("type") if isinstance(json, dict) else None
    if not isinstance(name, str):
        raise DataException("Schema must contain 'type' field")
    type_ = _TYPES.get(name)
    if type_ is None:
        raise DataException(f"Unknown schema type: {name}")
    members: dict[str, Any] = {}
    if type_ is Type.ARRAY:
        if json.get("items") is None:
            raise DataException("Array schema did not specify the element type")
        members["value_schema"] = schema_from_json(json["items"], values)
    elif type_ is Type.MAP:
        for member, part in (("keys", "key"), ("values", "value")):
            if json.get(member) is None:
                raise DataException(f"Map schema did not specify the {part} type")
        members["key_schema"] = schema_from_json(json["keys"], values)
        members["value_schema"] = schema_from_json(json["values"], values)
    elif type_ is Type.STRUCT:
        members["fields"] = _fields(json.get("fields"), values)
    members["optional"] = json.get("optional") is True
    for member, kind in (("name", str), ("doc", str), ("version", int)):
        value = json.get(member)
        if isinstance(value, kind) and not isinstance(value, bool):
            members[member] = value
    parameters = json.get("parameters")
    if isinstance(parameters, dict):
        if not all(isinstance(value, str) for value in parameters.values()):
            raise DataException("Schema parameters must have string values.")
        members["parameters"] = parameters
    schema = Schema(type_, **members)
    if "default" in json:
        default = values.reader(schema)(json["default"])
        schema = schema.replace(default=default)
    return schema


def _fields(json: Any, values: JsonValues) -> list[tuple[str, Schema]]:
    if not isinstance(json, list):
        raise DataException('Struct schema\'s "fields" argument is not an array.')
    fields: list[tuple[str, Schema]] = []
    for field in json:
        name = field.get("field") if isinstance(field, dict) else None
        if not isinstance(name, str):
            raise DataException("Struct schema's field name not specified properly")
        schema = schema_from_json(field, values)
        assert schema is not None, "a field with a name is an object"
        fields.append((name, schema))
    return fields
