"""Converters of texts, numbers, bytes and headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.configuration.plugins import PluginKind
from consumers.connect.converters.by_name import (
    converter_plugins,
    make_converter,
    make_header_converter,
)
from consumers.connect.converters.primitive_converters import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
)
from consumers.connect.converters.simple_header_converter import SimpleHeaderConverter
from consumers.connect.converters.string_converter import StringConverter
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.schemas import (
    BYTES,
    FLOAT32,
    INT8,
    INT32,
    NULL,
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT32,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT16,
    OPTIONAL_INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    struct_of,
)
from consumers.connect.data.structs import Struct
from consumers.connect.java.number_text import to_float32

POINT = struct_of({"x": INT8})


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        (None, "ä", "ä".encode()),
        (None, None, None),
        (None, True, b"true"),
        (None, 1.0, b"1.0"),
        (FLOAT32, to_float32(0.1), b"0.1"),
        (POINT, Struct(POINT, {"x": 1}), b"Struct{x=1}"),
        (None, {"a": [1]}, b"{a=[1]}"),
        (None, "\ud800", b"?"),
    ],
)
def test_any_value_becomes_its_text(schema: Schema | None, value: Any, data: bytes | None) -> None:
    assert StringConverter({}).from_connect("t", schema, value) == data


def test_bytes_become_a_text() -> None:
    assert StringConverter({}).to_connect("t", b"x") == (OPTIONAL_STRING, "x")
    assert StringConverter({}).to_connect("t", b"\xff") == (OPTIONAL_STRING, "\ufffd")
    assert StringConverter({}).to_connect("t", None) == (OPTIONAL_STRING, None)
    latin = StringConverter({"converter.encoding": "ISO-8859-1"})
    assert latin.to_connect("t", b"\xe4").value == "ä"
    assert latin.from_connect("t", None, "ä") == b"\xe4"
    for encoding in ("none", "base64", ""):
        with pytest.raises(ConfigException):
            StringConverter({"converter.encoding": encoding})


NUMBERS: list[tuple[Any, Schema, Any, bytes]] = [
    (ShortConverter({}), OPTIONAL_INT16, -2, b"\xff\xfe"),
    (IntegerConverter({}), OPTIONAL_INT32, 258, b"\x00\x00\x01\x02"),
    (LongConverter({}), OPTIONAL_INT64, 1, b"\x00" * 7 + b"\x01"),
    (FloatConverter({}), OPTIONAL_FLOAT32, 1.0, b"\x3f\x80\x00\x00"),
    (DoubleConverter({}), OPTIONAL_FLOAT64, 1.0, b"\x3f\xf0" + b"\x00" * 6),
    (BooleanConverter({}), OPTIONAL_BOOLEAN, True, b"\x01"),
    (ByteArrayConverter({}), OPTIONAL_BYTES, b"ab", b"ab"),
]


@pytest.mark.parametrize(("converter", "schema", "value", "data"), NUMBERS)
def test_values_have_a_fixed_form(converter: Any, schema: Schema, value: Any, data: bytes) -> None:
    assert converter.from_connect("t", schema, value) == data
    assert converter.to_connect("t", data) == (schema, value)
    assert converter.from_connect("t", schema, None) is None
    assert converter.to_connect("t", None) == (schema, None)
    assert converter.from_connect_header("t", "h", schema, value) == data
    assert converter.to_connect_header("t", "h", data) == (schema, value)


@pytest.mark.parametrize("converter", [each[0] for each in NUMBERS])
def test_values_of_another_kind_are_refused(converter: Any) -> None:
    for value in ("x", [1], object()):
        with pytest.raises(DataException):
            converter.from_connect("t", None, value)
    with pytest.raises(DataException):
        converter.from_connect("t", STRING, "x")


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(DataException):
        ShortConverter({}).from_connect("t", None, 40_000)
    with pytest.raises(DataException):
        FloatConverter({}).from_connect("t", None, 1e300)
    with pytest.raises(DataException):
        IntegerConverter({}).from_connect("t", None, True)
    with pytest.raises(DataException, match="integer: size of data is 3, not 4"):
        IntegerConverter({}).to_connect("t", b"abc")
    with pytest.raises(DataException):
        BooleanConverter({}).to_connect("t", b"\x02")
    with pytest.raises(DataException):
        BooleanConverter({}).from_connect("t", INT32, True)
    with pytest.raises(DataException):
        ByteArrayConverter({}).from_connect("t", INT32, b"x")


def test_a_header_is_a_text_that_says_its_type() -> None:
    converter = SimpleHeaderConverter({})
    assert converter.to_connect_header("t", "h", b"42") == (INT8, 42)
    assert converter.to_connect_header("t", "h", b"abc") == (STRING, "abc")
    assert converter.to_connect_header("t", "h", None) == NULL
    assert converter.to_connect_header("t", "h", b"\xff") == (BYTES, b"\xff")
    assert converter.from_connect_header("t", "h", INT8, 42) == b"42"
    assert converter.from_connect_header("t", "h", None, None) is None
    assert converter.from_connect_header("t", "h", None, {"a": [1]}) == b'{"a":[1]}'


@given(st.binary())
def test_no_header_is_refused(data: bytes) -> None:
    SimpleHeaderConverter({}).to_connect_header("t", "h", data)


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.json.JsonConverter",
        "JsonConverter",
        "Json",
        "consumers.connect.converters.json_converter.JsonConverter",
    ],
)
def test_a_converter_has_kafkas_names(name: str) -> None:
    converter = make_converter("value.converter", name, {"schemas.enable": "false"})
    assert converter.to_connect("t", b"1") == (None, 1)


def test_all_converters_of_kafka_are_there() -> None:
    by_kind = converter_plugins()
    names = {plugin.name.rpartition(".")[2] for plugin in by_kind[PluginKind.CONVERTER].values()}
    assert names == {
        *("AvroConverter", "JsonSchemaConverter", "ProtobufConverter"),
        *("BooleanConverter", "ByteArrayConverter", "DoubleConverter", "FloatConverter"),
        *("IntegerConverter", "JsonConverter", "LongConverter", "ShortConverter"),
        "StringConverter",
    }
    name = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert isinstance(make_header_converter(name, {}), SimpleHeaderConverter)
    with pytest.raises(ConfigException, match=r"Class x\.Y could not be found"):
        make_converter("key.converter", "x.Y", {})
    with pytest.raises(ConfigException):
        make_converter("key.converter", name, {})
