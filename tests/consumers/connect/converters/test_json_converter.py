"""JSON is read and written as Kafka Connect's JsonConverter does.

The documents are those of Kafka's documentation and of the converter's own format.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.converters.json_converter import JsonConverter
from consumers.connect.data.exceptions import DataException
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
    NULL,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaAndValue,
    Type,
    array_of,
    map_of,
    struct_of,
)
from consumers.connect.data.structs import Struct
from consumers.connect.java.number_text import to_float32

WITH_SCHEMAS = JsonConverter({})
WITHOUT = JsonConverter({"schemas.enable": "false"})
NUMERIC = JsonConverter({"decimal.format": "numeric"})
POINT = struct_of({"lat": FLOAT64, "name": OPTIONAL_STRING}, name="point")


def document(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


@pytest.mark.parametrize(
    ("schema", "value", "json_schema", "payload"),
    [
        (BOOLEAN, True, {"type": "boolean", "optional": False}, True),
        (INT8, 12, {"type": "int8", "optional": False}, 12),
        (INT16, 12, {"type": "int16", "optional": False}, 12),
        (INT32, 12, {"type": "int32", "optional": False}, 12),
        (INT64, 4398046511104, {"type": "int64", "optional": False}, 4398046511104),
        (FLOAT32, 12.5, {"type": "float", "optional": False}, 12.5),
        (FLOAT64, 12.34, {"type": "double", "optional": False}, 12.34),
        (BYTES, b"test-string", {"type": "bytes", "optional": False}, "dGVzdC1zdHJpbmc="),
        (STRING, "test-string", {"type": "string", "optional": False}, "test-string"),
        (
            array_of(INT32),
            [1, 2, 3],
            {"type": "array", "items": {"type": "int32", "optional": False}, "optional": False},
            [1, 2, 3],
        ),
        (
            map_of(STRING, INT32),
            {"key1": 12},
            {
                "type": "map",
                "keys": {"type": "string", "optional": False},
                "values": {"type": "int32", "optional": False},
                "optional": False,
            },
            {"key1": 12},
        ),
        (
            map_of(INT32, INT32),
            {1: 12, 2: 15},
            {
                "type": "map",
                "keys": {"type": "int32", "optional": False},
                "values": {"type": "int32", "optional": False},
                "optional": False,
            },
            [[1, 12], [2, 15]],
        ),
        (
            POINT,
            Struct(POINT, {"lat": 1.5}),
            {
                "type": "struct",
                "fields": [
                    {"type": "double", "optional": False, "field": "lat"},
                    {"type": "string", "optional": True, "field": "name"},
                ],
                "optional": False,
                "name": "point",
            },
            {"lat": 1.5, "name": None},
        ),
        (
            decimal_schema(2),
            Decimal("1.56"),
            {
                "type": "bytes",
                "optional": False,
                "name": "org.apache.kafka.connect.data.Decimal",
                "version": 1,
                "parameters": {"scale": "2"},
            },
            "AJw=",
        ),
        (
            DATE,
            date(1970, 4, 11),
            {
                "type": "int32",
                "optional": False,
                "name": "org.apache.kafka.connect.data.Date",
                "version": 1,
            },
            100,
        ),
        (
            TIME,
            time(0, 16, 40),
            {
                "type": "int32",
                "optional": False,
                "name": "org.apache.kafka.connect.data.Time",
                "version": 1,
            },
            1_000_000,
        ),
        (
            TIMESTAMP,
            datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC),
            {
                "type": "int64",
                "optional": False,
                "name": "org.apache.kafka.connect.data.Timestamp",
                "version": 1,
            },
            1_000_000_000_000,
        ),
    ],
)
def test_an_envelope_has_the_schema_and_the_value(
    schema: Schema, value: Any, json_schema: Any, payload: Any
) -> None:
    written = WITH_SCHEMAS.from_connect("t", schema, value)
    assert written is not None
    assert json.loads(written) == {"schema": json_schema, "payload": payload}
    assert list(json.loads(written)) == ["schema", "payload"]
    assert WITH_SCHEMAS.to_connect("t", document(json_schema, payload)) == (schema, value)


def test_a_schema_keeps_its_description_and_default() -> None:
    schema = Schema(
        Type.STRING, optional=True, default="x", name="n", version=3, doc="d", parameters={"a": "b"}
    )
    written = WITH_SCHEMAS.from_connect("t", schema, None)
    assert written is not None
    assert json.loads(written) == {
        "schema": {
            "type": "string",
            "optional": True,
            "name": "n",
            "version": 3,
            "doc": "d",
            "parameters": {"a": "b"},
            "default": "x",
        },
        "payload": "x",
    }
    assert WITH_SCHEMAS.to_connect("t", written) == (schema, "x")


def test_null_is_replaced_by_the_default_only_if_wanted() -> None:
    keeping = JsonConverter({"replace.null.with.default": "false"})
    schema = {"type": "string", "optional": True, "default": "x"}
    assert WITH_SCHEMAS.to_connect("t", document(schema, None)).value == "x"
    assert keeping.to_connect("t", document(schema, None)).value is None
    with_default = Schema(Type.STRING, optional=True, default="x")
    written = keeping.from_connect("t", with_default, None)
    assert written is not None
    assert json.loads(written)["payload"] is None


def test_a_struct_that_is_a_default_can_be_written_and_read() -> None:
    schema = POINT.replace(default=Struct(POINT, {"lat": 1.0}), optional=True)
    written = WITH_SCHEMAS.from_connect("t", schema, None)
    read = WITH_SCHEMAS.to_connect("t", written)
    assert read.value.get("lat") == 1.0


def test_a_tombstone_is_no_value() -> None:
    assert WITH_SCHEMAS.from_connect("t", None, None) is None
    for converter in (WITH_SCHEMAS, WITHOUT):
        assert converter.to_connect("t", None) == NULL
    assert WITHOUT.to_connect("t", b"") == NULL


def test_a_value_without_schema_has_a_null_schema_in_its_envelope() -> None:
    assert WITH_SCHEMAS.from_connect("t", None, {"a": 1}) == b'{"schema":null,"payload":{"a":1}}'
    assert WITH_SCHEMAS.to_connect("t", document(None, {"a": 1})) == (None, {"a": 1})
    assert WITH_SCHEMAS.to_connect("t", document(None, None)) == NULL


def test_json_without_envelope_is_taken_as_it_is() -> None:
    value = {"a": [1, 1.5, "x", None, True], "b": {"c": {}}}
    written = WITHOUT.from_connect("t", None, value)
    assert written == b'{"a":[1,1.5,"x",null,true],"b":{"c":{}}}'
    assert WITHOUT.to_connect("t", written) == (None, value)
    assert WITHOUT.from_connect("t", INT8, 5) == b"5"
    assert WITHOUT.from_connect("t", None, {1: "a"}) == b'[[1,"a"]]'
    assert WITHOUT.from_connect("t", None, b"ab") == b'"YWI="'


@pytest.mark.parametrize(
    "data",
    [b"{}", b"1", b"null", b'{"schema":null}', b'{"schema":null,"payload":1,"more":1}', b'{"a":1}'],
)
def test_plain_json_is_refused_where_an_envelope_is_due(data: bytes) -> None:
    with pytest.raises(DataException, match=r"set schemas\.enable=false"):
        WITH_SCHEMAS.to_connect("t", data)


@pytest.mark.parametrize(
    ("converter", "data"),
    [
        (WITHOUT, b'{"n":1e400}'),
        (WITH_SCHEMAS, b'{"schema":null,"payload":{"n":1e400}}'),
        (WITH_SCHEMAS, b'{"schema":{"type":"double","optional":false},"payload":1e400}'),
    ],
)
def test_a_number_beyond_all_doubles_is_what_is_refused(
    converter: JsonConverter, data: bytes
) -> None:
    with pytest.raises(DataException, match="serialization error: Number out of range"):
        converter.to_connect("t", data)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "Schema must contain 'type' field"),
        (5, "Schema must contain 'type' field"),
        ({"type": "int128"}, "Unknown schema type: int128"),
        ({"type": "array"}, "Array schema did not specify the element type"),
        ({"type": "map", "values": {"type": "int8"}}, "Map schema did not specify the key type"),
        ({"type": "map", "keys": {"type": "int8"}}, "Map schema did not specify the value type"),
        ({"type": "struct"}, 'Struct schema\'s "fields" argument is not an array.'),
        ({"type": "struct", "fields": [{"type": "int8"}]}, "field name not specified properly"),
        ({"type": "int8", "parameters": {"a": 1}}, "Schema parameters must have string values."),
        ({"type": "int8", "default": 300}, "out of range"),
        ({"type": "int8", "default": None}, "Invalid null value for required INT8 field"),
        (
            {
                "type": "struct",
                "fields": [{"type": "int8", "field": "a"}, {"type": "int8", "field": "a"}],
            },
            "duplication a",
        ),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(DataException, match=message):
        WITH_SCHEMAS.to_connect("t", document(schema, 1))


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({"type": "int8"}, 128),
        ({"type": "int32"}, "5"),
        ({"type": "int32"}, 1.5),
        ({"type": "int32"}, True),
        ({"type": "int32"}, None),
        ({"type": "boolean"}, 1),
        ({"type": "string"}, 1),
        ({"type": "double"}, "x"),
        ({"type": "bytes"}, "%"),
        ({"type": "bytes"}, 1),
        ({"type": "array", "items": {"type": "int8"}}, {}),
        ({"type": "array", "items": {"type": "int8"}}, [None]),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int8"}}, []),
        ({"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}}, {}),
        ({"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}}, [[1]]),
        ({"type": "map", "keys": {"type": "int8"}, "values": {"type": "int8"}}, [1]),
        ({"type": "struct", "fields": [{"type": "int8", "field": "a"}]}, {}),
        ({"type": "struct", "fields": []}, 1),
        (
            {
                "type": "map",
                "keys": {"type": "array", "items": {"type": "int8"}},
                "values": {"type": "int8"},
            },
            [[[1], 1]],
        ),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, "2024-01-01"),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}, "AJw="),
    ],
)
def test_a_value_of_another_schema_is_refused(schema: Any, payload: Any) -> None:
    with pytest.raises(DataException):
        WITH_SCHEMAS.to_connect("t", document(schema, payload))


@pytest.mark.parametrize(
    "data",
    [b"{", b"\xff", b'"\xff"', b"1e999", b"[" * 100_000, b"123456789012345678901", b"{'a':1}"],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    for converter in (WITH_SCHEMAS, WITHOUT, NUMERIC):
        with pytest.raises(DataException):
            converter.to_connect("t", data)
        with pytest.raises(DataException):
            converter.to_connect("t", b'{"schema":{"type":"int8"},"payload":' + data + b"}")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8, 128),
        (INT32, "1"),
        (STRING, 1),
        (STRING, None),
        (BOOLEAN, 1),
        (BYTES, "x"),
        (FLOAT64, 1),
        (array_of(INT8), 1),
        (map_of(STRING, INT8), [1]),
        (POINT, {"lat": 1.0}),
        (POINT, Struct(struct_of({"a": INT8}), {"a": 1})),
        (decimal_schema(2), Decimal("1.5")),
        (TIMESTAMP, 5),
        (STRING, "\ud800"),
        (None, Decimal("1.5")),
        (None, {"a": object()}),
        (None, 2**64),
        (None, Struct(POINT, {"lat": 1.0})),
        (None, datetime(2024, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_value_that_is_none_of_the_schema_is_not_written(schema: Schema, value: Any) -> None:
    with pytest.raises(DataException):
        WITH_SCHEMAS.from_connect("t", schema, value)


def test_a_value_nested_too_deeply_is_not_written() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(DataException):
        WITHOUT.from_connect("t", None, value)


def test_decimals_are_numbers_if_wanted_and_read_in_both_forms() -> None:
    schema = decimal_schema(2)
    written = NUMERIC.from_connect("t", schema, Decimal("1.50"))
    assert written is not None
    assert written.endswith(b'"payload":1.50}')
    for converter in (NUMERIC, WITH_SCHEMAS):
        assert str(converter.to_connect("t", written).value) == "1.50"
    base64 = WITH_SCHEMAS.from_connect("t", schema, Decimal("1.50"))
    assert NUMERIC.to_connect("t", base64).value == Decimal("1.50")


def test_numbers_that_json_does_not_have_are_texts() -> None:
    for value in (math.inf, -math.inf):
        written = WITH_SCHEMAS.from_connect("t", FLOAT64, value)
        assert WITH_SCHEMAS.to_connect("t", written).value == value
    written = WITH_SCHEMAS.from_connect("t", FLOAT32, math.nan)
    assert math.isnan(WITH_SCHEMAS.to_connect("t", written).value)
    assert WITHOUT.from_connect("t", None, math.nan) == b'"NaN"'


def test_a_float_is_written_with_the_digits_that_it_has() -> None:
    assert WITHOUT.from_connect("t", FLOAT32, to_float32(0.1)) == b"0.1"


def test_headers_are_converted_as_values_are() -> None:
    data = WITHOUT.from_connect_header("t", "h", None, {"a": 1})
    assert WITHOUT.to_connect_header("t", "h", data) == (None, {"a": 1})


def test_more_schemas_than_are_remembered_do_no_harm() -> None:
    converter = JsonConverter({"schemas.cache.size": "2"})
    for number in range(10):
        schema = struct_of({f"f{number}": INT8})
        value = Struct(schema, {f"f{number}": number})
        written = converter.from_connect("t", schema, value)
        assert converter.to_connect("t", written) == (schema, value)


def test_a_setting_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigException, match=r"String must be one of \(case insensitive\)"):
        JsonConverter({"decimal.format": "TEXT"})


text = st.text(alphabet=st.characters(codec="utf-8"), max_size=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(text, values, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_values_without_schema_come_back(value: Any) -> None:
    for converter in (WITHOUT, WITH_SCHEMAS):
        assert converter.to_connect("t", converter.from_connect("t", None, value)).value == value


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def whole_ms(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def scalars() -> st.SearchStrategy[SchemaAndValue]:
    def of(schema: Schema, values: st.SearchStrategy[Any]) -> st.SearchStrategy[SchemaAndValue]:
        return values.map(lambda value: SchemaAndValue(schema, value))

    return st.one_of(
        of(INT8, integers(8)),
        of(INT16, integers(16)),
        of(INT32, integers(32)),
        of(INT64, integers(64)),
        of(FLOAT32, st.floats(width=32, allow_nan=False)),
        of(FLOAT64, st.floats(allow_nan=False)),
        of(BOOLEAN, st.booleans()),
        of(STRING, text),
        of(BYTES, st.binary(max_size=10)),
        of(OPTIONAL_STRING, st.none() | text),
        of(
            decimal_schema(3),
            st.integers(-(10**20), 10**20).map(lambda each: Decimal(each).scaleb(-3)),
        ),
        of(DATE, st.dates()),
        of(TIME, st.times().map(whole_ms)),
        of(TIMESTAMP, st.datetimes(timezones=st.just(UTC)).map(whole_ms)),
    )


@st.composite
def with_schema(draw: st.DrawFn, depth: int = 2) -> SchemaAndValue:
    kinds = ["scalar", "array", "map", "struct"] if depth else ["scalar"]
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        return draw(scalars())
    element = draw(with_schema(depth - 1))
    assert element.schema is not None
    if kind == "array":
        return SchemaAndValue(array_of(element.schema), [element.value] * draw(st.integers(0, 3)))
    if kind == "map":
        keys, key = draw(st.sampled_from([(STRING, "a"), (INT32, 5), (BYTES, b"x")]))
        return SchemaAndValue(map_of(keys, element.schema), {key: element.value})
    other = draw(scalars())
    assert other.schema is not None
    names = draw(st.lists(text.filter(bool), min_size=2, max_size=2, unique=True))
    schema = struct_of(dict(zip(names, (element.schema, other.schema), strict=True)))
    values = dict(zip(names, (element.value, other.value), strict=True))
    return SchemaAndValue(schema, Struct(schema, values))


@given(with_schema(), st.sampled_from([WITH_SCHEMAS, NUMERIC]))
def test_values_with_schema_come_back(given_value: SchemaAndValue, to: JsonConverter) -> None:
    data = to.from_connect("t", *given_value)
    assert to.to_connect("t", data) == given_value


@given(json_values, json_values)
def test_no_envelope_raises_another_error(schema: Any, payload: Any) -> None:
    try:
        WITH_SCHEMAS.to_connect("t", document(schema, payload))
    except DataException:
        return


types = st.sampled_from([each.value for each in Type] + ["float", "double", "none"])
names = st.sampled_from(
    [f"org.apache.kafka.connect.data.{each}" for each in ("Decimal", "Date", "Time", "Timestamp")]
)
json_schemas = st.recursive(
    st.fixed_dictionaries(
        {"type": types},
        optional={
            "name": names,
            "default": json_values,
            "optional": st.booleans(),
            "parameters": st.just({"scale": "2"}),
        },
    ),
    lambda schemas: st.fixed_dictionaries(
        {"type": types},
        optional={
            "items": schemas,
            "keys": schemas,
            "values": schemas,
            "fields": st.lists(
                schemas.map(lambda schema: {**schema, "field": "a"}) | schemas, max_size=2
            ),
            "default": json_values,
        },
    ),
    max_leaves=4,
)


@given(json_schemas, json_values)
def test_no_schema_raises_another_error(schema: Any, payload: Any) -> None:
    try:
        WITH_SCHEMAS.to_connect("t", document(schema, payload))
    except DataException:
        return


@given(st.binary(max_size=40))
def test_no_bytes_raise_another_error(data: bytes) -> None:
    for converter in (WITH_SCHEMAS, WITHOUT):
        try:
            converter.to_connect("t", data)
        except DataException:
            continue


def test_numbers_too_large_for_their_type_are_infinite_or_refused() -> None:
    huge = b"1" + b"0" * 400
    double = b'{"schema":{"type":"double"},"payload":'
    assert WITH_SCHEMAS.to_connect("t", double + huge + b"}").value == math.inf
    assert WITH_SCHEMAS.to_connect("t", double + b"-" + huge + b"}").value == -math.inf
    assert WITH_SCHEMAS.from_connect("t", FLOAT32, 1e300) is not None
    with pytest.raises(DataException, match="expected Decimal"):
        NUMERIC.from_connect("t", decimal_schema(1), Decimal("NaN"))
    name = "org.apache.kafka.connect.data.Decimal"
    decimal = {"type": "bytes", "name": name, "parameters": {"scale": "1"}}
    with pytest.raises(DataException, match="should be numeric or bytes but was BOOLEAN"):
        WITH_SCHEMAS.to_connect("t", document(decimal, True))
    with pytest.raises(DataException, match="out of range for INT64"):
        WITHOUT.to_connect("t", b'{"a":[9223372036854775808]}')


def test_a_long_schema_is_read_but_not_remembered() -> None:
    schema = Schema(Type.STRING, doc="x" * 100_000)
    converter = JsonConverter({})
    data = converter.from_connect("t", schema, "a")
    for _ in range(2):
        assert converter.to_connect("t", data) == (schema, "a")
    assert len(converter._readings) == 0
