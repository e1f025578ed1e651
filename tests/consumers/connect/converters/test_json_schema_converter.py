"""JsonSchemaConverter: schemas as Confluent's class writes and reads them, and their values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.converters.json_schema_reading import json_schema_reading
from consumers.connect.converters.json_schema_writing import JsonSchemaValues, JsonSchemaWriter
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import OPTIONAL_TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array_of,
    map_of,
    struct_of,
)
from consumers.connect.data.structs import Struct
from tests.consumers.connect.converters.drawn_schemas import plain, schemas_and_values
from waylog.serialization.json_document import JsonDocument
from waylog.serialization.serializer import SerializationError

NAMESPACE = "io.confluent.connect.json"
ONE_OF = f"{NAMESPACE}.OneOf"


def values_of(*, numeric: bool = False) -> JsonSchemaValues:
    return JsonSchemaValues(numeric_decimals=numeric, replace_null_with_default=True)


def written(schema: Schema, *, numeric: bool = False, open_objects: bool = True) -> Any:
    values = values_of(numeric=numeric)
    return JsonSchemaWriter(values, numeric=numeric, open_objects=open_objects).of(schema)


def read(json: Any, others: dict[str, Any] | None = None, *, optional: bool = False) -> Schema:
    document = JsonDocument(json, others or {})
    return json_schema_reading(document, values_of(), optional_unless_required=optional)


@pytest.mark.parametrize(
    ("schema", "json"),
    [
        (STRING, {"type": "string"}),
        (INT8, {"type": "integer", "connect.type": "int8"}),
        (INT64, {"type": "integer", "connect.type": "int64"}),
        (FLOAT32, {"type": "number", "connect.type": "float32"}),
        (OPTIONAL_STRING, {"oneOf": [{"type": "null"}, {"type": "string"}]}),
        (
            decimal_schema(2),
            {"type": "string", "connect.type": "bytes", "connect.version": 1,
             "title": "org.apache.kafka.connect.data.Decimal",
             "connect.parameters": {"scale": "2"}},
        ),
        (
            OPTIONAL_TIMESTAMP,
            {"oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int64",
             "connect.version": 1, "title": "org.apache.kafka.connect.data.Timestamp"}]},
        ),
        (array_of(INT32), {"type": "array", "items": {"type": "integer",
                                                      "connect.type": "int32"}}),
        (
            map_of(STRING, STRING),
            {"type": "object", "connect.type": "map", "additionalProperties": {"type": "string"}},
        ),
        (
            map_of(INT32, STRING),
            {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": {
                "key": {"type": "integer", "connect.type": "int32", "connect.index": 0},
                "value": {"type": "string", "connect.index": 1}}}},
        ),
        (
            Schema(Type.STRUCT, name="n.R", version=3, doc="d", fields=[
                ("a", Schema(Type.STRING, default="x")), ("b", OPTIONAL_STRING)]),
            {"type": "object", "title": "n.R", "connect.version": 3, "description": "d",
             "properties": {"a": {"type": "string", "default": "x", "connect.index": 0},
                            "b": {"oneOf": [{"type": "null"}, {"type": "string"}],
                                  "connect.index": 1}}},
        ),
        (
            Schema(Type.STRING, parameters={
                f"{NAMESPACE}.Enum": "", f"{NAMESPACE}.Enum.A": "A", f"{NAMESPACE}.Enum.B": "B"}),
            {"enum": ["A", "B"]},
        ),
        (
            struct_of({f"{ONE_OF}.field.0": OPTIONAL_STRING, f"{ONE_OF}.field.1": OPTIONAL_INT32},
                      name=ONE_OF, optional=True),
            {"oneOf": [{"type": "null"}, {"type": "string", "connect.index": 0},
                       {"type": "integer", "connect.type": "int32", "connect.index": 1}]},
        ),
    ],
)  # fmt: skip
def test_schemas_are_written_as_confluents(schema: Schema, json: Any) -> None:
    assert written(schema) == json
    assert read(json) == schema


def test_decimals_may_be_numbers_and_objects_closed() -> None:
    schema = struct_of({"d": decimal_schema(2)})
    json = written(schema, numeric=True, open_objects=False)
    assert json["properties"]["d"]["type"] == "number"
    assert json["additionalProperties"] is False
    assert read(json) == schema


@pytest.mark.parametrize(
    ("json", "schema"),
    [
        ({"type": "integer"}, INT64),
        ({"type": "number"}, FLOAT64),
        ({"type": ["string", "null"]}, OPTIONAL_STRING),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, OPTIONAL_STRING),
        ({"oneOf": [{"type": "string"}]}, STRING),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, STRING),
        (
            {"type": "string", "const": "A"},
            Schema(Type.STRING,
                   parameters={f"{NAMESPACE}.Enum": "", f"{NAMESPACE}.Enum.A": "A"}),
        ),
        ({"type": "integer", "enum": [1, 2]}, INT64),
        (
            {"type": ["string", "null"], "enum": ["A", None]},
            Schema(Type.STRING, optional=True,
                   parameters={f"{NAMESPACE}.Enum": "", f"{NAMESPACE}.Enum.A": "A"}),
        ),
        # Properties have an order here, the given one or that of the text.
        (
            {"properties": {"b": {"type": "string"}, "a": {"type": "integer"}}},
            struct_of({"b": STRING, "a": INT64}),
        ),
        (
            {"properties": {"b": {"type": "string", "connect.index": 1},
                            "a": {"type": "integer", "connect.index": 0}}},
            struct_of({"a": INT64, "b": STRING}),
        ),
        (
            {"$ref": "#/$defs/p", "$defs": {"p": {"properties": {
                "a": {"$ref": "place.json"}, "b": {"$ref": "place.json"}}}}},
            struct_of({"a": struct_of({"lat": FLOAT64}), "b": struct_of({"lat": FLOAT64})}),
        ),
        (
            {"allOf": [{"properties": {"a": {"type": "string"}}},
                       {"properties": {"b": {"type": "integer"}}}]},
            struct_of({"a": STRING, "b": INT64}),
        ),
    ],
)  # fmt: skip
def test_schemas_of_others_are_read(json: Any, schema: Schema) -> None:
    assert read(json, {"place.json": {"properties": {"lat": {"type": "number"}}}}) == schema


def test_properties_that_are_not_required_may_be_null() -> None:
    json = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    assert read(json) == struct_of({"a": STRING, "b": STRING})
    assert read(json, optional=True) == struct_of({"a": STRING, "b": OPTIONAL_STRING})


TREE = {"title": "Tree", "properties": {"left": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("json", "reason"),
    [
        (True, "any JSON"),
        ({}, "one without a type"),
        ({"type": "null"}, "null alone"),
        ({"type": "array"}, "items type"),
        ({"type": "array", "items": [{"type": "string"}]}, "items type"),
        ({"enum": [1, "a"]}, "values of several types"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "several schemas at once"),
        ({"type": "integer", "connect.type": "int128"}, "Unsupported type int128"),
        (TREE, "contain themselves, as Tree does"),
    ],
)
def test_what_connect_has_no_word_for_is_told(json: Any, reason: str) -> None:
    with pytest.raises(DataException, match=reason):
        read(json)


def test_a_reference_that_leads_nowhere_is_told() -> None:
    with pytest.raises(SerializationError, match="leads nowhere"):
        read({"$ref": "#/nowhere"})


def test_a_schema_that_would_be_far_larger_than_its_text_is_told() -> None:
    """Each level is there twice: 2**40 schemas."""
    levels: dict[str, Any] = {"40": {"type": "string"}}
    for level in range(40):
        below = {"$ref": f"#/$defs/{level + 1}"}
        levels[str(level)] = {"properties": {"a": below, "b": below}}
    with pytest.raises(DataException, match="more than 10000 parts"):
        read({"$ref": "#/$defs/0", "$defs": levels})


@pytest.mark.parametrize(
    ("json", "chosen"),
    [
        ("x", 0), (5, 1), (1.5, 2), (Decimal("1.5"), 2), (True, 3), ([1], 4), ({"a": 1}, 5),
        ({"z": 1}, None),
    ],
)  # fmt: skip
def test_the_first_alternative_that_fits_is_taken(json: Any, chosen: int | None) -> None:
    alternatives: list[dict[str, Any]] = [
        {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "integer"}}},
    ]  # fmt: skip
    schema = read({"oneOf": alternatives})
    reads = values_of().reader(schema)
    if chosen is None:
        with pytest.raises(DataException, match="matching oneof field"):
            reads(json)
        return
    value = reads(json)
    assert [index for index, each in enumerate(value.values) if each is not None] == [chosen]
    back = values_of().writer(schema)(value)
    assert back == json


@pytest.mark.parametrize(
    "json", [{"key": 1}, [1], [{"key": 1, "x": 2}], [{"key": None, "value": ""}], [[1, ""]]]
)
def test_entries_of_another_form_are_told(json: Any) -> None:
    with pytest.raises(DataException):
        values_of().reader(map_of(INT32, STRING))(json)


@pytest.mark.parametrize("numeric", [False, True])
@given(st.data())
def test_schemas_and_values_come_back(numeric: bool, data: st.DataObject) -> None:
    schema, values = data.draw(schemas_and_values())
    value = data.draw(values)
    json = msgspec.json.decode(msgspec.json.encode(written(schema, numeric=numeric)))
    assert read(json) == schema
    of = values_of(numeric=numeric)
    text = msgspec.json.Encoder(decimal_format="number").encode(of.writer(schema)(value))
    exact = msgspec.json.Decoder(float_hook=Decimal).decode(text)
    assert plain(schema, of.reader(read(json))(exact)) == plain(schema, value)


_NAMES = st.sampled_from(
    [
        *("type", "properties", "items", "oneOf", "anyOf", "allOf", "enum", "const", "$ref"),
        *("title", "default", "required", "additionalProperties", "connect.type", "a", "b"),
        *("connect.index", "connect.parameters", "connect.version"),
    ]
)
_ANY = st.recursive(
    st.sampled_from(
        [
            *("string", "integer", "number", "object", "array", "null", "boolean", "map", "int8"),
            *("#", "#/properties/a", "bytes", 1, True, None, 1.5, "1"),
        ]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(_ANY, _ANY)
def test_any_json_is_a_schema_or_an_error(json: Any, value: Any) -> None:
    try:
        schema = read(json)
        found = values_of().reader(schema)(value)
    except (DataException, SerializationError):
        return
    if found is not None:
        values_of().writer(schema)(found)


def test_structs_of_another_schema_are_told() -> None:
    other = struct_of({"x": STRING}, name="Other")
    union = read({"oneOf": [{"type": "string"}, {"type": "integer"}]})
    with pytest.raises(DataException, match="Mismatching schema"):
        values_of().writer(union)(Struct(other, {"x": "y"}))
