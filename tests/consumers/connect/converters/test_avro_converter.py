"""AvroConverter: schemas as Confluent documents them, values, and a registry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.converters.avro_converter import AvroConverter
from consumers.connect.converters.avro_reading import avro_reading
from consumers.connect.converters.avro_writing import avro_writing
from consumers.connect.data.exceptions import DataException, RetriableException
from consumers.connect.data.logical_types import (
    DATE,
    OPTIONAL_TIMESTAMP,
    TIME,
    TIMESTAMP,
    decimal_schema,
)
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
from tests.ports import reserved_ports
from tests.registry_process import Registry, registry_with_broker
from waylog.serialization.avro_schema import AvroSchema

TRIP = struct_of({"city": STRING, "km": INT32, "at": OPTIONAL_TIMESTAMP}, name="test.Trip")
AT = datetime(2026, 11, 21, 8, tzinfo=UTC)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry_with_broker(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def converter(registry: Registry) -> Iterator[AvroConverter]:
    made = AvroConverter({"schema.registry.url": registry.url, "converter.type": "value"})
    yield made
    made.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize(
    ("schema", "avro"),
    [
        (STRING, "string"),
        (OPTIONAL_STRING, ["null", "string"]),
        (INT8, {"type": "int", "connect.type": "int8"}),
        (INT16, {"type": "int", "connect.type": "int16"}),
        (
            decimal_schema(2),
            {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2,
             "connect.version": 1, "connect.parameters": {"scale": "2"},
             "connect.name": "org.apache.kafka.connect.data.Decimal"},
        ),
        (
            TIMESTAMP,
            {"type": "long", "logicalType": "timestamp-millis", "connect.version": 1,
             "connect.name": "org.apache.kafka.connect.data.Timestamp"},
        ),
        (
            DATE,
            {"type": "int", "logicalType": "date", "connect.version": 1,
             "connect.name": "org.apache.kafka.connect.data.Date"},
        ),
        (array_of(INT32), {"type": "array", "items": "int"}),
        (map_of(STRING, INT64), {"type": "map", "values": "long"}),
        (
            map_of(INT32, STRING),
            {"type": "array", "items": {"type": "record", "name": "MapEntry",
             "namespace": "io.confluent.connect.avro",
             "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}]}},
        ),
        (
            struct_of({"a": INT32, "b": OPTIONAL_STRING}),
            {"type": "record", "name": "ConnectDefault", "namespace": "io.confluent.connect.avro",
             "fields": [{"name": "a", "type": "int"},
                        {"name": "b", "type": ["null", "string"], "default": None}]},
        ),
        (
            Schema(Type.STRUCT, name="n.R", version=3, doc="d", fields=[
                ("a", Schema(Type.INT32, default=7)),
                ("b", Schema(Type.STRING, optional=True, default="x"))]),
            {"type": "record", "name": "R", "namespace": "n",
             "fields": [{"name": "a", "type": "int", "default": 7},
                        {"name": "b", "type": ["string", "null"], "default": "x"}],
             "connect.doc": "d", "connect.version": 3, "connect.name": "n.R"},
        ),
    ],
)  # fmt: skip
def test_schemas_are_written_as_confluents(schema: Schema, avro: Any) -> None:
    written = avro_writing(schema, with_metadata=True).schema
    assert written == avro
    AvroSchema(json.dumps(written))
    assert avro_reading(written).schema == schema


def test_metadata_may_be_left_out() -> None:
    assert avro_writing(INT8, with_metadata=False).schema == "int"
    written = avro_writing(TIMESTAMP, with_metadata=False).schema
    assert written == {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("avro", "schema"),
    [
        ("long", INT64),
        ("float", FLOAT32),
        ({"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP),
        ({"type": "int", "logicalType": "time-millis"}, TIME),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            decimal_schema(3).replace(
                parameters={"scale": "3", "connect.decimal.precision": "9"}
            ),
        ),
        (["null", {"type": "array", "items": "int"}], array_of(INT32, optional=True)),
        (["int", "null"], INT32.replace(optional=True)),
        (
            {"type": "enum", "name": "E", "namespace": "n", "symbols": ["A", "B"]},
            Schema(Type.STRING, name="n.E", parameters={
                "io.confluent.connect.avro.Enum": "n.E",
                "io.confluent.connect.avro.Enum.A": "A",
                "io.confluent.connect.avro.Enum.B": "B"}),
        ),
        (
            {"type": "record", "name": "R", "namespace": "n", "fields": [
                {"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}},
                {"name": "b", "type": "F"}, {"name": "c", "type": "n.F"}]},
            struct_of({name: BYTES.replace(name="n.F") for name in "abc"}, name="n.R"),
        ),
    ],
)  # fmt: skip
def test_schemas_of_others_are_read(avro: Any, schema: Schema) -> None:
    assert avro_reading(avro).schema == schema


@pytest.mark.parametrize(
    ("avro", "reason"),
    [
        ({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]},
         "contain themselves, as L"),
        (["int", "string"], "Unions of several types"),
        *(("null", "null schemas"), ("missing.Type", "does not define missing.Type")),
    ],
)  # fmt: skip
def test_what_connect_has_no_word_for_is_told(avro: Any, reason: str) -> None:
    with pytest.raises(DataException, match=reason):
        avro_reading(avro)


@pytest.mark.parametrize(
    "schema",
    [
        struct_of({"a b": INT32}),
        struct_of({"a": INT32}, name="not a name"),
        struct_of({"a": struct_of({"x": INT32}), "b": struct_of({"y": INT32})}),
        Schema(Type.ARRAY),
        Schema(Type.MAP, key_schema=STRING),
    ],
)
def test_what_avro_cannot_name_is_told(schema: Schema) -> None:
    with pytest.raises(DataException):
        avro_writing(schema, with_metadata=True)


_SCALARS: dict[Schema, st.SearchStrategy[Any]] = {
    INT8: st.integers(-128, 127),
    INT16: st.integers(-(2**15), 2**15 - 1),
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**63), 2**63 - 1),
    FLOAT32: st.floats(width=32, allow_nan=False),
    FLOAT64: st.floats(allow_nan=False),
    BOOLEAN: st.booleans(),
    STRING: st.text(max_size=8),
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


@st.composite
def _schemas_and_values(draw: st.DrawFn, depth: int = 3) -> tuple[Schema, st.SearchStrategy[Any]]:
    kind = draw(st.sampled_from(["scalar", "optional", "array", "map", "entries", "struct"]))
    if kind == "scalar" or depth == 0:
        schema = draw(st.sampled_from(list(_SCALARS)))
        return schema, _SCALARS[schema]
    inner, values = draw(_schemas_and_values(depth=depth - 1))
    if kind == "optional":
        return inner.replace(optional=True), st.none() | values
    if kind == "array":
        return array_of(inner), st.lists(values, max_size=3)
    if kind == "map":
        return map_of(STRING, inner), st.dictionaries(st.text(max_size=3), values, max_size=3)
    if kind == "entries":
        name = f"Entry{depth}"
        schema = map_of(INT32, inner).replace(name=name)
        return schema, st.dictionaries(_SCALARS[INT32], values, max_size=3)
    schema = struct_of({"a": inner, "b": OPTIONAL_STRING}, name=f"n.S{depth}")
    made = st.builds(lambda a, b: Struct(schema, {"a": a, "b": b}), values, st.none() | st.text())
    return schema, made


@given(st.data())
def test_schemas_and_values_come_back(data: st.DataObject) -> None:
    schema, values = data.draw(_schemas_and_values())
    value = data.draw(values)
    avro, write = avro_writing(schema, with_metadata=True)
    kept = AvroSchema(json.dumps(avro))
    back, read = avro_reading(avro)
    assert back == schema
    assert read(kept.read(kept.write(write(value)))) == value


def test_records_go_through_the_registry(
    converter: AvroConverter, registry: Registry, topic: str
) -> None:
    value = Struct(TRIP, {"city": "Wien", "km": 12, "at": AT})
    data = converter.from_connect(topic, TRIP, value)
    assert data is not None
    assert data[:1] == b"\0"
    assert converter.to_connect(topic, data) == (TRIP, value)
    fresh = AvroConverter({"schema.registry.url": registry.url, "converter.type": "value"})
    assert fresh.to_connect(topic, data) == (TRIP, value)
    fresh.close()
    assert converter.from_connect(topic, None, None) is None
    assert converter.from_connect(topic, TRIP.replace(optional=True), None) is None
    assert converter.to_connect(topic, None) == (None, None)


def test_a_newer_schema_has_to_be_compatible(converter: AvroConverter, topic: str) -> None:
    converter.from_connect(topic, TRIP, Struct(TRIP, {"city": "Wien", "km": 12}))
    newer = struct_of({"city": STRING, "km": INT32, "by": OPTIONAL_STRING}, name="test.Trip")
    data = converter.from_connect(topic, newer, Struct(newer, {"city": "Graz", "km": 1}))
    assert converter.to_connect(topic, data).schema == newer
    wrong = struct_of({"city": STRING, "km": STRING, "by": STRING}, name="test.Trip")
    with pytest.raises(DataException, match="incompatible with an earlier schema"):
        converter.from_connect(topic, wrong, Struct(wrong, {"city": "G", "km": "1", "by": "x"}))


@pytest.mark.parametrize("data", [b"", b"{}", b"\0\0\0", b"\0\x7f\xff\xff\xffx"])
def test_bytes_of_anybody_are_an_error_of_the_record(
    converter: AvroConverter, topic: str, data: bytes
) -> None:
    with pytest.raises(DataException, match="Failed to deserialize data"):
        converter.to_connect(topic, data)


def test_a_value_that_is_cut_off_is_an_error_of_the_record(
    converter: AvroConverter, topic: str
) -> None:
    data = converter.from_connect(topic, STRING, "hello")
    assert data is not None
    for wrong in (data[:-1], data + b"x", data[:5]):
        with pytest.raises(DataException, match="Failed to deserialize data"):
            converter.to_connect(topic, wrong)


def test_values_without_a_schema_are_refused(converter: AvroConverter, topic: str) -> None:
    with pytest.raises(DataException, match="has no schema"):
        converter.from_connect(topic, None, {"a": 1})
    with pytest.raises(DataException, match="non-optional"):
        converter.from_connect(topic, STRING, None)
    with pytest.raises(DataException, match="Invalid type for INT32"):
        converter.from_connect(topic, INT32, "5")


def test_a_registry_that_is_away_is_tried_again(topic: str) -> None:
    url = f"http://127.0.0.1:{reserved_ports(1)[0]}"
    away = AvroConverter({"schema.registry.url": url})
    with pytest.raises(RetriableException, match="does not answer"):
        away.to_connect(topic, b"\0\0\0\0\1x")
    with pytest.raises(RetriableException, match="does not answer"):
        away.from_connect(topic, STRING, "x")
    away.close()


@pytest.mark.parametrize(
    "more",
    [
        {"schema.registry.url": ""},
        {"use.latest.version": "true"},
        {"value.subject.name.strategy": "com.example.Mine"},
        {"basic.auth.credentials.source": "SASL_INHERIT"},
        {"schemas.cache.config": "0"},
    ],
)
def test_wrong_properties_are_told(more: dict[str, str]) -> None:
    with pytest.raises(ConfigException):
        AvroConverter({"schema.registry.url": "http://127.0.0.1:1", **more})
    with pytest.raises(ConfigException):
        AvroConverter({})


def test_the_days_of_python_are_days_of_avro() -> None:
    avro, write = avro_writing(DATE, with_metadata=True)
    assert write(date(1970, 1, 2)) == 1
    assert avro_reading(avro).read(1) == date(1970, 1, 2)
