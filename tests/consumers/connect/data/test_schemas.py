"""Schemas and what they say of values."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from consumers.connect.data.exceptions import DataException, SchemaException
from consumers.connect.data.logical_types import DATE, TIME, TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    BOOLEAN,
    BYTES,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Type,
    array_of,
    map_of,
    struct_of,
    validate_value,
)
from consumers.connect.data.structs import Struct

POINT = struct_of({"lat": FLOAT64, "lon": FLOAT64}, name="point")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 127),
        (INT16, -32768),
        (INT32, 0),
        (INT64, 2**63 - 1),
        (FLOAT32, 1.5),
        (FLOAT64, 1.5),
        (BOOLEAN, True),
        (STRING, ""),
        (BYTES, b""),
        (OPTIONAL_STRING, None),
        (array_of(INT8), [1, 2]),
        (map_of(STRING, BOOLEAN), {"a": False}),
        (POINT, Struct(POINT, {"lat": 1.0, "lon": 2.0})),
        (decimal_schema(2), Decimal("1.25")),
        (DATE, date(2024, 1, 1)),
        (TIME, time(1, 2)),
        (TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_value_of_the_schema_is_valid(schema: Schema, value: Any) -> None:
    validate_value(schema, value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 128),
        (INT32, True),
        (INT64, 1.0),
        (FLOAT64, 1),
        (STRING, b"x"),
        (STRING, None),
        (BOOLEAN, 1),
        (array_of(INT8), ["x"]),
        (array_of(INT8), [None]),
        (map_of(STRING, INT8), {1: 1}),
        (POINT, {"lat": 1.0}),
        (POINT, Struct(struct_of({"x": INT8}), {"x": 1})),
        (DATE, 1),
        (DATE, datetime(2024, 1, 1, tzinfo=UTC)),
        (Schema(Type.ARRAY), [1]),
    ],
)
def test_any_other_value_is_refused(schema: Schema, value: Any) -> None:
    with pytest.raises(DataException):
        validate_value(schema, value)


def test_the_message_says_where() -> None:
    with pytest.raises(DataException, match='null used for required field: "lat"'):
        Struct(POINT, {"lon": 1.0})
    with pytest.raises(DataException, match='with type INT8: str for element of array field: "a"'):
        Struct(struct_of({"a": array_of(INT8)}), {"a": ["x"]})


def test_equal_schemas_are_one_key() -> None:
    one = struct_of({"a": INT8, "b": array_of(STRING)})
    other = struct_of({"a": INT8, "b": array_of(STRING)})
    assert one == other
    assert {one: 1}[other] == 1
    assert one != one.replace(doc="x")
    assert one != one.replace(optional=True)
    assert INT8 != INT16


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(SchemaException, match="duplication a"):
        Schema(Type.STRUCT, fields=[("a", INT8), ("a", INT8)])
    with pytest.raises(SchemaException):
        Schema(Type.STRUCT, fields=[("", INT8)])
    with pytest.raises(SchemaException):
        Schema(Type.INT8, fields=[("a", INT8)])
    with pytest.raises(SchemaException, match="Invalid default value"):
        Schema(Type.INT8, default="x")
    with pytest.raises(DataException):
        INT8.field("a")


def test_a_struct_gives_the_default_for_what_it_does_not_have() -> None:
    schema = struct_of({"a": Schema(Type.INT8, default=7), "b": OPTIONAL_STRING})
    struct = Struct(schema, {})
    assert struct.get("a") == 7
    assert struct.get_without_default("a") is None
    assert struct.get("b") is None
    assert struct.values_with_defaults() == (7, None)
    with pytest.raises(DataException, match="c is not a valid field name"):
        struct.get("c")
    with pytest.raises(DataException, match="c is not a valid field name"):
        Struct(schema, {"c": 1})
    with pytest.raises(DataException, match="Not a struct schema"):
        Struct(INT8, {})


def test_structs_are_equal_by_schema_and_values() -> None:
    one, other = (Struct(POINT, {"lat": 1.0, "lon": 2.0}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Struct(POINT, {"lat": 1.0, "lon": 3.0})
