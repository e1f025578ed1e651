"""Values as texts, and what a header's text is."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import DATE, TIME, TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    BOOLEAN,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array_of,
    map_of,
    struct_of,
)
from consumers.connect.data.structs import Struct
from consumers.connect.data.text_parser import parse_text
from consumers.connect.data.value_text import header_text, java_text
from consumers.connect.java.number_text import to_float32

STRUCT = struct_of({"a": INT8, "b": OPTIONAL_STRING})


@pytest.mark.parametrize(
    ("value", "java", "header"),
    [
        ("x", "x", "x"),
        (None, "null", "null"),
        (True, "true", "true"),
        (1, "1", "1"),
        (1.0, "1.0", "1.0"),
        (b"ab", "YWI=", "YWI="),
        ([1, "a"], "[1, a]", '[1,"a"]'),
        ({"a": [1], "b": None}, "{a=[1], b=null}", '{"a":[1],"b":null}'),
        (Struct(STRUCT, {"a": 1}), "Struct{a=1}", '{"a":1,"b":null}'),
        (['say "x\\"'], '[say "x\\"]', '["say \\"x\\\\\\""]'),
        (date(2024, 1, 2), "2024-01-02", "2024-01-02"),
        (time(1, 2, 3, 4000), "01:02:03.004Z", "01:02:03.004Z"),
        (
            datetime(2024, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
            "2024-01-02T03:04:05.006Z",
            "2024-01-02T03:04:05.006Z",
        ),
        (Decimal("1.50"), "1.50", "1.50"),
    ],
)
def test_values_have_texts(value: Any, java: str, header: str) -> None:
    assert java_text(value) == java
    assert header_text(value) == header


def test_a_value_of_an_unknown_class_has_no_text() -> None:
    for text in (java_text, header_text):
        with pytest.raises(DataException):
            text(object())
        with pytest.raises(DataException):
            text([object()])
        nested: Any = []
        for _ in range(100_000):
            nested = [nested]
        with pytest.raises(DataException):
            text(nested)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("", STRING, ""),
        ("  ", STRING, "  "),
        ("abc", STRING, "abc"),
        (" true ", BOOLEAN, True),
        ("false", BOOLEAN, False),
        ("true}", STRING, "true}"),
        ("1", INT8, 1),
        ("-128", INT8, -128),
        ("128", INT16, 128),
        ("40000", INT32, 40000),
        ("+5000000000", INT64, 5_000_000_000),
        ("1.0", INT8, 1),
        ("1.5", FLOAT32, 1.5),
        ("1e3", INT16, 1000),
        ("1e30", FLOAT32, to_float32(1e30)),
        ("9223372036854775808", decimal_schema(0), Decimal("9223372036854775808")),
        ("1x", STRING, "1x"),
        ("2019-08-23", DATE, date(2019, 8, 23)),
        ("14:34:54.346Z", TIME, time(14, 34, 54, 346_000)),
        ("2019-08-23T14:34:54.346Z", TIMESTAMP, datetime(2019, 8, 23, 14, 34, 54, 346_000, UTC)),
        ("2019-13-45", STRING, "2019-13-45"),
        ("[]", Schema(Type.ARRAY), []),
        ("[1, 2, 300]", array_of(INT16), [1, 2, 300]),
        ("[1, 2.5]", array_of(FLOAT32), [1.0, 2.5]),
        ('["a","b\\"c"]', array_of(STRING), ["a", 'b"c']),
        ("[null,null]", Schema(Type.ARRAY), [None, None]),
        # As Kafka: null is no number.
        ("[1,null]", STRING, "[1,null]"),
        ('[1,"a"]', Schema(Type.ARRAY), [1, "a"]),
        ("[a]", STRING, "[a]"),
        ("[1,2", STRING, "[1,2"),
        ("[1]x", STRING, "[1]x"),
        ("{}", Schema(Type.MAP), {}),
        ('{"a":1,"b":2}', map_of(STRING, INT8), {"a": 1, "b": 2}),
        ('{"t":2019-08-23T14:34:54.346Z}', map_of(STRING, TIMESTAMP), None),
        ('{"a":[1,2],"b":[3]}', map_of(STRING, array_of(INT8)), {"a": [1, 2], "b": [3]}),
        ("{null:1}", STRING, "{null:1}"),
        ("{1}", STRING, "{1}"),
    ],
)
def test_a_text_is_recognised(text: str, schema: Schema, value: Any) -> None:
    if value is None:
        value = {"t": datetime(2019, 8, 23, 14, 34, 54, 346_000, UTC)}
    assert parse_text(text) == (schema, value)


def test_null_has_neither_schema_nor_value() -> None:
    assert parse_text("null") == NULL


def test_what_is_nested_too_deeply_is_a_text() -> None:
    text = "[" * 10_000
    assert parse_text(text) == (STRING, text)


def test_a_number_of_a_billion_digits_costs_nothing() -> None:
    assert parse_text("1e999999999").value == Decimal("1e999999999")


@given(st.text())
def test_no_text_is_refused(text: str) -> None:
    schema, value = parse_text(text)
    if schema == STRING:
        assert value == text


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(alphabet=st.characters(codec="utf-8"))
)


@given(st.lists(scalars) | st.dictionaries(st.text(), scalars))
def test_arrays_and_maps_are_read_as_they_were_written(value: Any) -> None:
    text = header_text(value)
    read = parse_text(text)
    # Where one is null and others are not, Kafka leaves the text as it is.
    assert read.value == value or (read == (STRING, text) and "null" in text)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_keep_their_value(value: float) -> None:
    read = parse_text(header_text(value, FLOAT32)).value
    assert math.isclose(float(read), value, rel_tol=1e-6)


def test_an_array_or_map_that_is_broken_is_a_text() -> None:
    for text in ('["a', '{"a":1 "b":2}', "[1 2]", "{[1]:2}", "[,1]", "[1," + "[" * 100):
        assert parse_text(text) == (STRING, text)


def test_a_number_of_too_many_digits_has_no_text() -> None:
    for text in (java_text, header_text):
        with pytest.raises(DataException):
            text(10**10_000)
