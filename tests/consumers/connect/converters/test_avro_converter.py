"""AvroConverter: schemas as Confluent documents them, and values."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.converters.avro_reading import avro_reading
from consumers.connect.converters.avro_writing import avro_writing
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import (
    DATE,
    TIME,
    TIMESTAMP,
    decimal_schema,
)
from consumers.connect.data.schemas import (
    BYTES,
    FLOAT32,
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
from tests.consumers.connect.converters.drawn_schemas import schemas_and_values
from waylog.serialization.avro_schema import AvroSchema


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


@given(st.data())
def test_schemas_and_values_come_back(data: st.DataObject) -> None:
    schema, values = data.draw(schemas_and_values())
    value = data.draw(values)
    avro, write = avro_writing(schema, with_metadata=True)
    kept = AvroSchema(json.dumps(avro))
    back, read = avro_reading(avro)
    assert back == schema
    assert read(kept.read(kept.write(write(value)))) == value


def test_the_days_of_python_are_days_of_avro() -> None:
    avro, write = avro_writing(DATE, with_metadata=True)
    assert write(date(1970, 1, 2)) == 1
    assert avro_reading(avro).read(1) == date(1970, 1, 2)
