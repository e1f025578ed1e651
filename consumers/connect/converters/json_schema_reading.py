"""JSON Schemas as Connect's, as Confluent's JsonSchemaConverter reads them.

Values are read by `JsonSchemaValues`. Whether they keep to the bounds of their schema is not looked
at, as it is not there either.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from consumers.connect.converters import json_schema_names
from consumers.connect.converters.json_schema_writing import JsonSchemaValues
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import STRING, Schema, Type
from waylog.serialization.json_document import JsonDocument

#: Schemas that one schema may consist of, with what its $refs lead to written in their place.
SCHEMAS_MAX: Final = 10_000
_NUMBERS: Final = {
    **{"int8": Type.INT8, "int16": Type.INT16, "int32": Type.INT32, "int64": Type.INT64},
    **{"float32": Type.FLOAT32, "float64": Type.FLOAT64, "bytes": Type.BYTES},
}


def json_schema_reading(
    document: JsonDocument, values: JsonSchemaValues, *, optional_unless_required: bool
) -> Schema:
    """Return the Connect schema of a JSON Schema.

    `optional_unless_required`: properties that are not required may be null. Raises DataException
    for what Connect has no word for, and SerializationError for a `$ref` that leads nowhere.
    """
    return _Reader(document, values, optional_unless_required=optional_unless_required).of(
        document.json, document.json
    )


class _Reader:
    def __init__(
        self, document: JsonDocument, values: JsonSchemaValues, *, optional_unless_required: bool
    ) -> None:
        self._document: Final = document
        self._values: Final = values
        self._optional_unless_required: Final = optional_unless_required
        #: By identity: what is being looked at further up.
        self._open: Final[set[int]] = set()
        self._looked_at = 0

    def of(self, json: Any, root: Any, *, optional: bool = False) -> Schema:
        """Return the schema of JSON within a document."""
        self._looked_at += 1
        if self._looked_at > SCHEMAS_MAX:
            raise DataException(f"The JSON Schema has more than {SCHEMAS_MAX} parts")
        json, root = self._document.resolved(json, root)
        if not isinstance(json, dict):
            raise DataException("Connect has no schema for any JSON, as true or false stand for")
        if id(json) in self._open:
            raise DataException(
                "Connect has no schemas that contain themselves, as "
                f"{str(json.get('title', 'one of the JSON Schema'))[:100]} does"
            )
        self._open.add(id(json))
        try:
            return self._with_metadata(self._form(json, root), json, optional=optional)
        finally:
            self._open.discard(id(json))

    def _form(self, json: Mapping[str, Any], root: Any) -> Schema:
        """Return the schema without name, version and default."""
        if isinstance(json.get("allOf"), list):
            return self._all_of(json, root)
        for word in ("oneOf", "anyOf"):
            if isinstance(json.get(word), list):
                return self._one_of(json[word], root)
        kind = json.get("type")
        if isinstance(kind, list):
            rest = {name: each for name, each in json.items() if name in _OF_FORM}
            return self._one_of([rest | {"type": each} for each in kind], root)
        if "const" in json or isinstance(json.get("enum"), list):
            return self._enum(json, root)
        if kind == "object" or (kind is None and isinstance(json.get("properties"), dict)):
            return self._object(json, root)
        if kind == "array":
            return self._array(json, root)
        return self._scalar(kind, json.get(json_schema_names.TYPE))

    @staticmethod
    def _scalar(kind: Any, type_: Any) -> Schema:
        if kind == "boolean":
            return Schema(Type.BOOLEAN)
        if kind == "string":
            return Schema(Type.BYTES if type_ == Type.BYTES.value else Type.STRING)
        if kind in ("integer", "number"):
            if type_ is None:
                return Schema(Type.INT64 if kind == "integer" else Type.FLOAT64)
            if isinstance(type_, str) and type_ in _NUMBERS:
                return Schema(_NUMBERS[type_])
            raise DataException(f"Unsupported type {str(type_)[:100]}")
        if kind == "null":
            raise DataException("Connect has no schema for null alone")
        what = "one without a type" if kind is None else f"type {str(kind)[:100]}"
        raise DataException(f"Connect has no schema for a JSON Schema like {what}")

    def _enum(self, json: Mapping[str, Any], root: Any) -> Schema:
        symbols = [json["const"]] if "const" in json else json["enum"]
        texts = [each for each in symbols if isinstance(each, str)]
        if texts and len(texts) == sum(each is not None for each in symbols):
            parameters = {json_schema_names.ENUM: ""} | {
                f"{json_schema_names.ENUM}.{each}": each for each in texts
            }
            optional = len(texts) < len(symbols)
            return Schema(Type.STRING, parameters=parameters, optional=optional)
        if json.get("type") is not None:
            return self.of(
                {name: each for name, each in json.items() if name not in ("enum", "const")}, root
            )
        raise DataException("Connect has no schema for values of several types, or other than text")

    def _object(self, json: Mapping[str, Any], root: Any) -> Schema:
        if json.get(json_schema_names.TYPE) == json_schema_names.MAP:
            values = self.of(json.get("additionalProperties"), root)
            return Schema(Type.MAP, key_schema=STRING, value_schema=values)
        return self._struct(*_properties(json), root)

    def _struct(self, properties: Mapping[str, Any], required: set[str], root: Any) -> Schema:
        order = sorted(enumerate(properties), key=lambda each: _index(properties[each[1]], each[0]))
        fields = []
        for _, name in order:
            may_be_missing = self._optional_unless_required and name not in required
            fields.append((name, self.of(properties[name], root, optional=may_be_missing)))
        return Schema(Type.STRUCT, fields=fields)

    def _array(self, json: Mapping[str, Any], root: Any) -> Schema:
        items = json.get("items")
        if items is None or isinstance(items, list):
            raise DataException("Array schema did not specify the items type")
        if json.get(json_schema_names.TYPE) == json_schema_names.MAP:
            entry, of_entry = self._document.resolved(items, root)
            entries = entry.get("properties") if isinstance(entry, dict) else None
            if isinstance(entries, dict) and {"key", "value"} <= entries.keys():
                return Schema(
                    Type.MAP,
                    key_schema=self.of(entries["key"], of_entry),
                    value_schema=self.of(entries["value"], of_entry),
                )
        return Schema(Type.ARRAY, value_schema=self.of(items, root))

    def _one_of(self, alternatives: list[Any], root: Any) -> Schema:
        found = []
        has_null = False
        for each in alternatives:
            resolved, _ = self._document.resolved(each, root)
            if isinstance(resolved, dict) and resolved.get("type") == "null":
                has_null = True
            else:
                found.append(each)
        if len(found) == 1:
            return self.of(found[0], root, optional=has_null)
        if not found:
            raise DataException("Connect has no schema for null alone")
        fields = [
            (f"{json_schema_names.FIELD}{index}", self.of(each, root, optional=True))
            for index, each in enumerate(found)
        ]
        name = json_schema_names.ONE_OF
        return Schema(Type.STRUCT, name=name, fields=fields, optional=has_null)

    def _all_of(self, json: Mapping[str, Any], root: Any) -> Schema:
        """Return what all parts say together: objects are joined, others have to be one."""
        rest = {name: each for name, each in json.items() if name in _OF_FORM}
        parts = [*json["allOf"], *([rest] if rest else [])]
        resolved = [self._document.resolved(each, root) for each in parts]
        objects = [
            (each, of) for each, of in resolved
            if isinstance(each, dict) and isinstance(each.get("properties"), dict)
        ]  # fmt: skip
        if objects:
            if any(of is not root for _, of in objects):
                raise DataException("Connect has no schema for parts of several documents")
            properties: dict[str, Any] = {}
            required: set[str] = set()
            for each, _ in objects:
                more, needed = _properties(each)
                properties |= more
                required |= needed
            return self._struct(properties, required, root)
        typed = [
            (each, of) for each, of in resolved if isinstance(each, dict) and each.keys() & _TYPED
        ]
        if len(typed) != 1:
            raise DataException("Connect has no schema for several schemas at once (allOf)")
        each, of = typed[0]
        return self.of(each, of)

    def _with_metadata(self, schema: Schema, json: Mapping[str, Any], *, optional: bool) -> Schema:
        members: dict[str, Any] = {}
        title, doc = json.get("title"), json.get("description")
        version = json.get(json_schema_names.VERSION)
        parameters = json.get(json_schema_names.PARAMETERS)
        if isinstance(title, str) and schema.name is None:
            members["name"] = title
        if isinstance(version, int) and not isinstance(version, bool):
            members["version"] = version
        if isinstance(doc, str):
            members["doc"] = doc
        if isinstance(parameters, dict) and all(isinstance(t, str) for t in parameters.values()):
            members["parameters"] = {**(schema.parameters or {}), **parameters}
        if optional:
            members["optional"] = True
        if members:
            schema = schema.replace(**members)
        if json.get("default") is None:
            return schema
        return schema.replace(default=self._values.reader(schema)(json["default"]))


#: What says which form values have, beside alternatives.
_TYPED: Final = frozenset(("type", "enum", "const", "items", "oneOf", "anyOf", "allOf"))
_OF_FORM: Final = _TYPED - {"oneOf", "anyOf", "allOf"} | {
    *("properties", "required", "additionalProperties", json_schema_names.TYPE),
}


def _properties(json: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    properties, required = json.get("properties"), json.get("required")
    return (
        properties if isinstance(properties, dict) else {},
        {each for each in required if isinstance(each, str)}
        if isinstance(required, list)
        else set(),
    )


def _index(json: Any, place: int) -> int:
    index = json.get(json_schema_names.INDEX) if isinstance(json, dict) else None
    is_number = isinstance(index, (int, Decimal)) and not isinstance(index, bool)
    return int(index) if is_number and index is not None else place
