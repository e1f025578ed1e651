"""Avro's encoding: readers of other ages than their writers, and bytes of anybody."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.resident_memory import resident_kb
from waylog.serialization.avro_limits import NESTING_MAX
from waylog.serialization.avro_schema import AvroSchema
from waylog.serialization.json_numbers import json_bytes
from waylog.serialization.serializer import SerializationError

TRIP = {
    "type": "record",
    "name": "Trip",
    "namespace": "test",
    "fields": [{"name": "city", "type": "string"}, {"name": "km", "type": "int"}],
}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
TREE = {
    "type": "record",
    "name": "T",
    "fields": [{"name": "below", "type": {"type": "array", "items": "T"}}],
}


def schema(json_schema: Any) -> AvroSchema:
    return AvroSchema(json.dumps(json_schema))


def trip(*fields: dict[str, Any]) -> AvroSchema:
    return schema({**TRIP, "fields": list(fields)})


CITY = {"name": "city", "type": "string"}


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Keep finalizers of other tests' garbage from running where no call is possible any more."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_value_comes_back() -> None:
    written = schema(TRIP).write({"city": "Wien", "km": 12})
    assert written == b"\x08Wien\x18"
    assert schema(TRIP).read(written) == {"city": "Wien", "km": 12}
    assert schema(TRIP).name == "test.Trip"


@pytest.mark.parametrize(
    ("reader", "seen"),
    [
        (trip(CITY), {"city": "Wien"}),  # a field removed
        (
            trip(CITY, {"name": "km", "type": "int"}, {"name": "by", "type": "string",
                                                       "default": "foot"}),
            {"city": "Wien", "km": 12, "by": "foot"},
        ),
        (trip(CITY, {"name": "km", "type": "double"}), {"city": "Wien", "km": 12.0}),
        (trip(CITY, {"name": "km", "type": ["null", "long"], "default": None}),
         {"city": "Wien", "km": 12}),
        (trip({"name": "km", "type": "int"}, CITY), {"city": "Wien", "km": 12}),
        (trip({"name": "town", "aliases": ["city"], "type": "string"}), {"town": "Wien"}),
    ],
    ids=["removed", "added", "promoted", "made optional", "moved", "renamed"],
)  # fmt: skip
def test_a_reader_of_another_age_sees_its_own_fields(
    reader: AvroSchema, seen: dict[str, Any]
) -> None:
    written = schema(TRIP).write({"city": "Wien", "km": 12})
    assert schema(TRIP).read(written, reader) == seen


@pytest.mark.parametrize(
    "reader",
    [
        trip(CITY, {"name": "by", "type": "string"}),
        trip(CITY, {"name": "km", "type": "string"}),
        schema("long"),
    ],
    ids=["added without default", "another type", "no record"],
)
def test_a_reader_that_does_not_fit_is_told(reader: AvroSchema) -> None:
    written = schema(TRIP).write({"city": "Wien", "km": 12})
    with pytest.raises(SerializationError):
        schema(TRIP).read(written, reader)


def test_logical_types_are_plain_values() -> None:
    at = schema({"type": "long", "logicalType": "timestamp-millis"})
    assert at.read(at.write(1_700_000_000_123)) == 1_700_000_000_123
    # No date of Python's is so far away.
    assert at.read(at.write(2**63 - 1)) == 2**63 - 1
    price = schema({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    assert price.read(b"\x04\x04\xd2") == b"\x04\xd2"


def test_a_type_that_is_kept_elsewhere_is_found() -> None:
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "lat", "type": "double"}]}
    line = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "from", "type": "geo.Point"}, {"name": "to", "type": "geo.Point"}],
    }
    found = AvroSchema(json.dumps(line), {"geo.Point": point})
    value = {"from": {"lat": 1.0}, "to": {"lat": 2.0}}
    assert found.read(found.write(value)) == value
    with pytest.raises(SerializationError):
        schema(line)


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "{}", "[", '{"type":"record"}', '{"type":"nope"}', '"nope"'),
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
        *('{"type":' * (NESTING_MAX + 2) + '"int"' + "}" * (NESTING_MAX + 2), "[" * 100_000),
        json.dumps({"type": "string", "doc": "x" * 1_100_000}),
    ],
)
def test_what_is_no_schema_is_told(text: str) -> None:
    with pytest.raises(SerializationError):
        AvroSchema(text)


def _doubling(levels: int) -> Any:
    kind: Any = "null"
    for level in range(levels):
        fields = [{"name": "a", "type": kind}]
        fields.append({"name": "b", "type": kind if isinstance(kind, str) else kind["name"]})
        kind = {"type": "record", "name": f"R{level}", "fields": fields}
    return kind


@pytest.mark.parametrize(
    "bomb",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "R", "fields": []}},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        _doubling(25),
        {"type": "map", "values": _doubling(8)},
    ],
    ids=["nulls", "empty records", "empty bytes", "doubling", "a map of doubling"],
)
def test_a_schema_whose_values_could_be_any_size_is_not_read(bomb: Any) -> None:
    with pytest.raises(SerializationError, match="the schema is not read"):
        schema(bomb)


def test_a_map_of_nulls_has_the_bytes_of_its_keys() -> None:
    avro = schema({"type": "map", "values": "null"})
    assert avro.read(avro.write({"a": None, "b": None})) == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("of", "data"),
    [
        (LIST, b"\2" * 2_000_000),
        (TREE, b"\2" * 2_000_000),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b""),
        ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "array", "items": "long"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
        ({"type": "map", "values": "long"}, b"\xfe\xff\xff\xff\x1f"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc"),
        *(("string", b"\x01abc"), ("string", b"\x04\xff\xfe"), ("long", b"\xff" * 2_000_000)),
        *(("double", b"abc"), (["null", "int"], b"\x06"), ("null", b"x"), ("int", b"")),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x08"),
    ],
)
@pytest.mark.usefixtures("no_collection")
def test_hostile_bytes_are_an_error_of_the_record(of: Any, data: bytes) -> None:
    reading = schema(of)
    before = resident_kb()
    with pytest.raises(SerializationError):
        reading.read(data)
    assert resident_kb() - before < 100_000


@pytest.mark.usefixtures("no_collection")
def test_a_value_that_is_nested_too_deeply_is_not_written() -> None:
    value: Any = None
    for _ in range(100_000):
        value = {"next": value}
    with pytest.raises(SerializationError):
        schema(LIST).write(value)
    while value:  # piece by piece, since Python frees it by recursion
        value = value["next"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("null", "the schema is null: the name of a type"),
        ("5", "the schema is 5: "),
        ("{}", "the schema is {}: "),
        ('["int",null]', r"the schema\[1\] is null: "),
        ('{"type":"array"}', "the schema has no valid `items`, which a type array needs"),
        ('{"type":"record","name":"R","fields":5}', "the schema has no valid `fields`"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"map","values":7}}]}',
            r"the schema\.a has no valid `values`",
        ),
        ('{"type":"enum","name":"E"}', "the schema has no valid `symbols`"),
        ('"nope"', "there is no type nope"),
    ],
)
def test_what_is_no_schema_is_told_in_words_of_avro(text: str, reason: str) -> None:
    with pytest.raises(SerializationError, match=f"no Avro schema: {reason}"):
        AvroSchema(text)


_NUMBERS = {
    "type": "record",
    "name": "N",
    "fields": [
        {"name": "d", "type": "double"},
        {"name": "o", "type": ["null", "float"]},
        {"name": "t", "type": ["null", "string", "double"]},
        {"name": "many", "type": {"type": "array", "items": ["null", "double"]}},
        {"name": "map", "type": ["null", {"type": "map", "values": "double"}]},
        {"name": "below", "type": ["null", "N"], "default": None},
    ],
}


def test_numbers_without_digits_are_texts_in_json_and_come_back() -> None:
    numbers = schema(_NUMBERS)
    inner = {"d": 1.0, "o": math.inf, "t": "NaN", "many": [], "map": None, "below": None}
    value = {
        **{"d": -math.inf, "o": math.inf, "t": "Infinity", "many": [None, math.inf, 1.5]},
        **{"map": {"a": -math.inf}, "below": inner},
    }
    data = numbers.write(value)
    json_ = json_bytes(numbers.read(data))
    assert b'"many":[null,"Infinity",1.5]' in json_
    assert b'"d":"-Infinity"' in json_
    assert numbers.write(json.loads(json_)) == data
    nan = json_bytes({"a": (math.nan, None), 1: Decimal("1.50")})
    assert nan == b'{"a":["NaN",null],"1":"1.50"}'


def test_a_value_of_another_form_is_told_with_its_place() -> None:
    with pytest.raises(SerializationError, match=r"Trip\.km is <x> .* expected int"):
        schema(TRIP).write({"city": "Wien", "km": "x"})
    with pytest.raises(SerializationError, match=r"N\.o is <x> .* expected float"):
        value: dict[str, Any] = {"d": "NaN", "o": "x", "t": None, "many": [], "map": None}
        schema(_NUMBERS).write(value)


@pytest.mark.parametrize("value", [{"city": 1, "km": 2}, {"city": "Wien"}, 5, None, "x"])
def test_a_value_of_another_form_is_not_written(value: Any) -> None:
    with pytest.raises(SerializationError, match=r"no test\.Trip"):
        schema(TRIP).write(value)


_PRIMITIVES = st.sampled_from(
    ["boolean", "int", "long", "float", "double", "bytes", "string"]
)  # null alone has no bytes


def _types() -> st.SearchStrategy[Any]:
    return st.recursive(
        _PRIMITIVES,
        lambda types: st.one_of(
            types.map(lambda each: {"type": "array", "items": each}),
            types.map(lambda each: {"type": "map", "values": each}),
            _PRIMITIVES.map(lambda each: ["null", each]),
        ),
        max_leaves=4,
    )


def _values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, list):
        return st.none() | _values(kind[1])
    if isinstance(kind, dict):
        if kind["type"] == "array":
            return st.lists(_values(kind["items"]), max_size=4)
        return st.dictionaries(st.text(max_size=4), _values(kind["values"]), max_size=4)
    by_name: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=8),
        "string": st.text(max_size=8),
    }
    return by_name[kind]


@given(st.data())
def test_values_come_back_and_are_what_fastavro_writes(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(_types(), max_size=4))
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    record = schema({"type": "record", "name": "R", "fields": fields})
    value = {f"f{number}": data.draw(_values(kind)) for number, kind in enumerate(kinds)}
    assert record.read(record.write(value)) == value


@given(st.data(), st.binary(max_size=60))
def test_any_bytes_are_a_value_or_an_error(data: st.DataObject, anything: bytes) -> None:
    kinds = data.draw(st.lists(_types(), min_size=1, max_size=3))
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    for of in ({"type": "record", "name": "R", "fields": fields}, LIST, TREE):
        try:
            value = schema(of).read(anything)
        except SerializationError:
            continue
        assert isinstance(value, dict)
