"""Which JSON Schemas accept what others do: by pairs, and by values that are drawn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.schema_registry.errors import RegistryError
from gateway.schema_registry.json_compatibility import json_incompatibilities
from gateway.schema_registry.parsed import Referenced
from gateway.schema_registry.schema_types import incompatibilities, parse
from waylog.serialization.avro_limits import NESTING_MAX, SCHEMA_BYTES_MAX
from waylog.serialization.json_document import JsonDocument

OPEN = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = {**OPEN, "additionalProperties": False}
STRINGS = {**OPEN, "additionalProperties": {"type": "string"}}


def kinds(reader: Any, writer: Any) -> list[str]:
    found = json_incompatibilities(JsonDocument(reader, {}), JsonDocument(writer, {}))
    return [each.split("'")[1] for each in found]


def plus(schema: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], **properties}}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ({"type": "integer"}, {"type": "number"}),
        ({"type": "integer"}, {"type": ["integer", "null"]}),
        ({"type": "string"}, True),
        ({"type": "string"}, {}),
        (False, {"type": "string"}),
        ({"maxLength": 5, "type": "string"}, {"maxLength": 6, "type": "string"}),
        ({"minimum": 5, "type": "number"}, {"minimum": 4, "type": "number"}),
        ({"multipleOf": 4, "type": "integer"}, {"multipleOf": 2, "type": "integer"}),
        ({"pattern": "a", "type": "string"}, {"type": "string"}),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"enum": ["a"]}, {"type": "string"}),
        ({"const": 1}, {"enum": [1, 2]}),
        (plus(OPEN, b={"type": "string"}), OPEN),
        (CLOSED, plus(CLOSED, b={"type": "string"})),
        (STRINGS, plus(STRINGS, b={"type": "string"})),
        (plus(STRINGS, b={"type": "string"}), STRINGS),
        (CLOSED, OPEN),
        ({**CLOSED, "required": ["a"]}, CLOSED),
        ({"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}),
        ({"type": "string"}, {"oneOf": [{"type": "null"}, {"type": "string"}]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["string", "null"]}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string", "maxLength": 4}),
        ({"type": "array", "items": {"type": "integer"}}, {"type": "array"}),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}),
        ({"type": "string", "title": "x"}, {"type": "string", "description": "y"}),
        ({"not": {"type": ["string", "null"]}}, {"not": {"type": "string"}}),
    ],
)
def test_a_wider_schema_reads_what_the_narrower_one_allows(writer: Any, reader: Any) -> None:
    assert kinds(reader, writer) == []


@pytest.mark.parametrize(
    ("writer", "reader", "kind"),
    [
        ({"type": "number"}, {"type": "integer"}, "TYPE_CHANGED"),
        ({"type": ["string", "null"]}, {"type": "string"}, "TYPE_NARROWED"),
        (True, {"type": "string"}, "TYPE_NARROWED"),
        ({"type": "string"}, False, "TYPE_NARROWED"),
        ({"maxLength": 6}, {"maxLength": 5}, "MAX_LENGTH_DECREASED"),
        ({"type": "string"}, {"type": "string", "minLength": 1}, "MIN_LENGTH_ADDED"),
        ({"minimum": 4}, {"minimum": 5}, "MINIMUM_INCREASED"),
        ({"multipleOf": 2}, {"multipleOf": 4}, "MULTIPLE_OF_CHANGED"),
        ({"type": "string"}, {"type": "string", "pattern": "a"}, "PATTERN_ADDED"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED"),
        ({"type": "string"}, {"enum": ["a"], "type": "string"}, "ENUM_ARRAY_CHANGED"),
        (OPEN, plus(OPEN, b={"type": "string"}), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        (plus(CLOSED, b={"type": "string"}), CLOSED, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        (STRINGS, plus(STRINGS, b={"type": "number"}),
         "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (plus(STRINGS, b={"type": "number"}), STRINGS,
         "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (OPEN, CLOSED, "ADDITIONAL_PROPERTIES_REMOVED"),
        (CLOSED, {**CLOSED, "required": ["a"]}, "REQUIRED_ATTRIBUTE_ADDED"),
        (OPEN, {**OPEN, "properties": {"a": {"type": "number"}}}, "TYPE_CHANGED"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, {"anyOf": [{"type": "string"}]},
         "SUM_TYPE_NARROWED"),
        ({"type": "number"}, {"oneOf": [{"type": "null"}, {"type": "string"}]},
         "SUM_TYPE_NARROWED"),
        ({"type": "string"}, {"allOf": [{"type": "string"}, {"maxLength": 3}]},
         "PRODUCT_TYPE_EXTENDED"),
        ({"type": "array"}, {"type": "array", "items": {"type": "integer"}}, "TYPE_NARROWED"),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED"),
        ({"not": {"type": "string"}}, {"not": {"type": ["string", "null"]}}, "NOT_TYPE_EXTENDED"),
        ({}, {"not": {"type": "string"}}, "NOT_TYPE_EXTENDED"),
    ],
)  # fmt: skip
def test_a_narrower_schema_does_not(writer: Any, reader: Any, kind: str) -> None:
    assert kind in kinds(reader, writer)


def test_a_required_property_with_a_default_may_be_added_to_a_closed_schema() -> None:
    reader = plus({**CLOSED, "required": ["b"]}, b={"type": "string", "default": ""})
    assert kinds(reader, CLOSED) == []


def test_references_are_followed_and_circles_end() -> None:
    def tree(kind: str) -> dict[str, Any]:
        node = {
            "type": "object",
            "properties": {"v": {"type": kind}, "next": {"$ref": "#/$defs/node"}},
        }
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}

    assert kinds(tree("number"), tree("integer")) == []
    assert kinds(tree("integer"), tree("number")) == ["TYPE_CHANGED"]
    other = JsonDocument({"$ref": "place.json"}, {"place.json": {"type": "string"}})
    assert json_incompatibilities(other, JsonDocument({"type": "string"}, {})) == []
    assert json_incompatibilities(other, JsonDocument({"type": "null"}, {}))
    for bad in ({"$ref": "#/nowhere"}, {"$ref": "x.json"}, {"$ref": "#"}):
        with pytest.raises(RegistryError):
            kinds({"type": "string"}, bad)


def test_alternatives_of_alternatives_end() -> None:
    deep: Any = {"type": "string"}
    for _ in range(12):
        deep = {"anyOf": [{"allOf": [deep, {"minLength": 1}]}, {"allOf": [deep, True]}]}
    other = json.loads(json.dumps(deep).replace('"minLength": 1', '"minLength": 2'))
    with pytest.raises(RegistryError, match="too many alternatives"):
        kinds(other, deep)


def test_types_of_schemas_are_not_mixed() -> None:
    text = json.dumps({"type": "string"})
    found = incompatibilities(parse("JSON", text, (), ()), parse("AVRO", '"string"', (), ()))
    assert "TYPE_MISMATCH" in found[0]


def test_json_schemas_that_are_too_large_are_not_kept() -> None:
    def commented(size: int) -> str:
        text = json.dumps({"type": "string", "description": ""})
        return text.replace('""', f'"{"x" * (size - len(text))}"')

    def nested(levels: int) -> str:
        return '{"items":' * levels + "{}" + "}" * levels

    kept = (commented(SCHEMA_BYTES_MAX), nested(NESTING_MAX))
    refused = (
        (commented(SCHEMA_BYTES_MAX + 1), "longer than 1048576 bytes"),
        (nested(NESTING_MAX + 1), "more than 100 levels"),
    )
    for text in kept:
        parse("JSON", text, (), ())
    for text, reason in refused:
        for own, referenced in ((text, ()), ("true", (Referenced("other", text),))):
            with pytest.raises(RegistryError, match=reason) as told:
                parse("JSON", own, (), referenced)
            assert told.value.code == 42201


# ---- what is said to be accepted is accepted

_NAMES = st.sampled_from(["a", "b"])
_LEAVES = st.one_of(
    st.builds(dict, type=st.sampled_from(["string", "integer", "number", "null", "boolean"])),
    st.builds(dict, type=st.just("integer"), minimum=st.integers(0, 3)),
    st.builds(dict, type=st.just("integer"), maximum=st.integers(0, 3)),
    st.builds(dict, type=st.just("string"), maxLength=st.integers(0, 2)),
    st.builds(dict, enum=st.lists(st.sampled_from([0, 1, "a", None]), min_size=1, max_size=3)),
    st.booleans(),
)
_SCHEMAS = st.recursive(
    _LEAVES,
    lambda below: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object")},
            optional={
                "properties": st.dictionaries(_NAMES, below, max_size=2),
                "required": st.lists(_NAMES, max_size=2),
                "additionalProperties": below,
            },
        ),
        st.builds(dict, type=st.just("array"), items=below),
        st.builds(dict, anyOf=st.lists(below, min_size=1, max_size=2)),
        st.builds(dict, allOf=st.lists(below, min_size=1, max_size=2)),
        st.builds(lambda each: {"not": each}, below),
    ),
    max_leaves=5,
)
_VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 3, 4, 0.5, "", "a", "aa", "aaa"]),
    lambda below: st.one_of(
        st.lists(below, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "c"]), below)
    ),
    max_leaves=4,
)


def is_valid(schema: Any, value: Any) -> bool:
    """Tell whether a value is valid, for the keywords above."""
    if isinstance(schema, bool):
        return schema
    kind = schema.get("type")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        None: True,
        "string": isinstance(value, str),
        "integer": is_number and float(value).is_integer(),
        "number": is_number,
        "null": value is None,
        "boolean": isinstance(value, bool),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
    }[kind]
    if not fits:
        return False
    if "enum" in schema and json.dumps(value) not in {json.dumps(each) for each in schema["enum"]}:
        return False
    if is_number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return False
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        if not set(schema.get("required", ())) <= value.keys():
            return False
        if not all(is_valid(properties.get(name, rest), each) for name, each in value.items()):
            return False
    if isinstance(value, list) and not all(
        is_valid(schema.get("items", True), each) for each in value
    ):
        return False
    if "anyOf" in schema and not any(is_valid(each, value) for each in schema["anyOf"]):
        return False
    if "allOf" in schema and not all(is_valid(each, value) for each in schema["allOf"]):
        return False
    return not ("not" in schema and is_valid(schema["not"], value))


@settings(max_examples=400, deadline=None)
@given(_SCHEMAS, _SCHEMAS, st.lists(_VALUES, min_size=1, max_size=20))
def test_what_is_called_compatible_accepts_every_value(
    reader: Any, writer: Any, values: list[Any]
) -> None:
    if kinds(reader, writer):
        return
    for value in values:
        assert not is_valid(writer, value) or is_valid(reader, value)
