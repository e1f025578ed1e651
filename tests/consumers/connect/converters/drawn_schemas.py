"""Schemas of Connect that hypothesis draws, with values of them."""

from __future__ import annotations

from datetime import UTC, time
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

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
)
from consumers.connect.data.structs import Struct

#: All characters but surrogates, as is the default: by categories they are found in a tenth of the
#: second and a half of processor time that it takes to try the codec on each of them.
_CHARACTERS = st.characters(exclude_categories=["Cs"])

SCALARS: dict[Schema, st.SearchStrategy[Any]] = {
    INT8: st.integers(-128, 127),
    INT16: st.integers(-(2**15), 2**15 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT32: st.floats(width=32, allow_nan=False),
    FLOAT64: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    STRING: st.text(_CHARACTERS, max_size=8),
    BYTES: st.binary(max_size=8),
    decimal_schema(2): st.integers(-(10**9), 10**9).map(lambda each: Decimal(each).scaleb(-2)),
    DATE: st.dates(),
    TIME: st.integers(0, 86_399_999).map(
        lambda ms: time(ms // 3_600_000, ms // 60_000 % 60, ms // 1000 % 60, ms % 1000 * 1000)
    ),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)).map(
        lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)
    ),
}

Drawn = tuple[Schema, st.SearchStrategy[Any]]


@st.composite
def schemas_and_values(draw: st.DrawFn, depth: int = 3) -> Drawn:
    """Draw a schema of any form, and the values that it has."""
    kind = draw(st.sampled_from(["scalar", "optional", "array", "map", "entries", "struct"]))
    if kind == "scalar" or depth == 0:
        return _scalar(draw)
    inner, values = draw(schemas_and_values(depth=depth - 1))
    if kind == "optional":
        return inner.replace(optional=True), st.none() | values
    if kind == "array":
        return array_of(inner), st.lists(values, max_size=3)
    if kind == "map":
        return map_of(STRING, inner), st.dictionaries(
            st.text(_CHARACTERS, max_size=3), values, max_size=3
        )
    if kind == "entries":
        name = f"Entry{depth}"
        schema = map_of(INT32, inner).replace(name=name)
        return schema, st.dictionaries(SCALARS[INT32], values, max_size=3)
    return _struct(depth, inner, values)


@st.composite
def structs_and_values(draw: st.DrawFn, depth: int = 3) -> Drawn:
    """Draw a struct as Protobuf can have it: collections have scalars and structs within."""
    kind = draw(st.sampled_from(["scalar", "optional", "array", "map", "entries"]))
    inner, values = _scalar(draw)
    if depth > 1 and draw(st.booleans()):
        inner, values = draw(structs_and_values(depth=depth - 1))
    if kind == "optional":
        inner, values = inner.replace(optional=True), st.none() | values
    if kind == "array":
        inner, values = array_of(inner), st.lists(values, max_size=3)
    if kind == "map":
        inner, values = (
            map_of(STRING, inner),
            st.dictionaries(st.text(_CHARACTERS, max_size=3), values, max_size=3),
        )
    if kind == "entries":
        schema = map_of(INT32, inner).replace(name=f"entry_{depth}")
        inner, values = schema, st.dictionaries(SCALARS[INT32], values, max_size=3)
    return _struct(depth, inner, values)


def _scalar(draw: st.DrawFn) -> Drawn:
    schema = draw(st.sampled_from(list(SCALARS)))
    return schema, SCALARS[schema]


def _struct(depth: int, inner: Schema, values: st.SearchStrategy[Any]) -> Drawn:
    schema = struct_of({"a": inner, "b": OPTIONAL_STRING}, name=f"n.S{depth}")
    made = st.builds(
        lambda a, b: Struct(schema, {"a": a, "b": b}), values, st.none() | st.text(_CHARACTERS)
    )
    return schema, made


def plain(schema: Schema, value: Any) -> Any:
    """Return a value without its schemas; Protobuf has no null of an array or map."""
    if value is None:
        return {Type.ARRAY: [], Type.MAP: {}}.get(schema.type)
    if schema.type is Type.STRUCT:
        return {
            field.name: plain(field.schema, each)
            for field, each in zip(value.schema.fields, value.values, strict=True)
        }
    inner = schema.value_schema
    if schema.type is Type.ARRAY:
        assert inner is not None
        return [plain(inner, each) for each in value]
    if schema.type is Type.MAP:
        assert inner is not None
        return {key: plain(inner, each) for key, each in value.items()}
    return value
