"""ProtobufConverter: schemas as Confluent's class writes and reads them, and their values."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="Protobuf needs pip install 'waylog[protobuf]'")

from hypothesis import example, given
from hypothesis import strategies as st

from consumers.connect.converters.protobuf_names import ProtobufOptions
from consumers.connect.converters.protobuf_reading import protobuf_reading
from consumers.connect.converters.protobuf_writing import protobuf_writing, raw_wrapper
from consumers.connect.data.exceptions import DataException
from consumers.connect.data.logical_types import DATE, TIME, TIMESTAMP, decimal_schema
from consumers.connect.data.schemas import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    OPTIONAL_INT32,
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
from tests.consumers.connect.converters.drawn_schemas import plain, structs_and_values
from waylog.serialization.protobuf_printer import proto_text
from waylog.serialization.protobuf_schema import ProtobufSchema
from waylog.serialization.serializer import SerializationError

EMPTY = ProtobufOptions()
NULLABLE = ProtobufOptions(optional_for_nullables=True)
WRAPPED = ProtobufOptions(wrapper_for_nullables=True)
NAMESPACE = "io.confluent.connect.protobuf"


def written(schema: Schema, options: ProtobufOptions = EMPTY) -> str:
    return proto_text(protobuf_writing(schema, options).file)


def there_and_back(
    schema: Schema, value: Any, options: ProtobufOptions = EMPTY
) -> tuple[bytes, SchemaAndValue]:
    file, name, put = protobuf_writing(schema, options)
    kept = ProtobufSchema(proto_text(file), message=name)
    message = kept.new_message()
    put(message, value)
    data = kept.write(message)
    return data, read(kept, data, options)


def read(schema: ProtobufSchema, data: bytes, options: ProtobufOptions = EMPTY) -> SchemaAndValue:
    message = schema.read_message(data)
    reading = protobuf_reading(message.DESCRIPTOR, options)
    return SchemaAndValue(reading.schema, reading.read(message))


def tagged(schema: Schema, tag: int, *, optional: bool = True) -> Schema:
    parameters = {**(schema.parameters or {}), f"{NAMESPACE}.Tag": str(tag)}
    return schema.replace(parameters=parameters, optional=optional)


def test_a_schema_is_written_as_confluents() -> None:
    inner = struct_of({"x": INT8}, name="n.Inner")
    schema = struct_of(
        {
            "city": STRING,
            "km": INT16,
            "price": decimal_schema(2),
            "day": DATE,
            "at": TIME,
            "begin": TIMESTAMP,
            "stops": array_of(inner),
            "Inner": inner,
            "ways": map_of(STRING, INT64),
            "rest": map_of(INT32, inner).replace(name="my_rest"),
        },
        name="test.v1.Trip",
    )
    assert written(schema) == (
        'syntax = "proto3";\npackage test.v1;\n\n'
        'import "confluent/meta.proto";\nimport "confluent/type/decimal.proto";\n'
        'import "google/type/date.proto";\nimport "google/type/timeofday.proto";\n'
        'import "google/protobuf/timestamp.proto";\n\n'
        "message Trip {\n"
        "  string city = 1;\n"
        "  int32 km = 2 [(confluent.field_meta) = "
        '{ params : [ { key : "connect.type" value : "int16" } ] }];\n'
        "  .confluent.type.Decimal price = 3 [(confluent.field_meta) = "
        '{ params : [ { key : "scale" value : "2" } ] }];\n'
        "  .google.type.Date day = 4;\n"
        "  .google.type.TimeOfDay at = 5;\n"
        "  .google.protobuf.Timestamp begin = 6;\n"
        "  repeated .test.v1.Trip.Inner stops = 7;\n"
        # A field and a message cannot have the same name.
        "  .test.v1.Trip.InnerMessage Inner = 8;\n"
        "  repeated .test.v1.Trip.ConnectDefault1Entry ways = 9;\n"
        "  repeated .test.v1.Trip.MyRestEntry rest = 10;\n"
        "  message Inner {\n"
        "    int32 x = 1 [(confluent.field_meta) = "
        '{ params : [ { key : "connect.type" value : "int8" } ] }];\n'
        "  }\n"
        "  message InnerMessage {\n"
        "    int32 x = 1 [(confluent.field_meta) = "
        '{ params : [ { key : "connect.type" value : "int8" } ] }];\n'
        "  }\n"
        "  message ConnectDefault1Entry {\n    string key = 1;\n    int64 value = 2;\n  }\n"
        "  message MyRestEntry {\n    int32 key = 1;\n"
        "    .test.v1.Trip.MyRestEntry.Inner value = 2;\n"
        "    message Inner {\n"
        "      int32 x = 1 [(confluent.field_meta) = "
        '{ params : [ { key : "connect.type" value : "int8" } ] }];\n'
        "    }\n  }\n"
        "}\n"
    )
    ProtobufSchema(written(schema))


def test_a_schema_is_read_as_confluents() -> None:
    text = """
    syntax = "proto3";
    package test;
    import "confluent/meta.proto";
    import "confluent/type/decimal.proto";
    import "google/protobuf/timestamp.proto";
    message Trip {
      string city = 1;
      int32 km = 2 [(confluent.field_meta).params = { key: "connect.type", value: "int16" }];
      uint32 id = 3;
      confluent.type.Decimal price = 4 [(confluent.field_meta) = {
        params: [ { key: "scale", value: "2" }, { key: "precision", value: "9" } ]
      }];
      google.protobuf.Timestamp begin = 5;
      repeated Stop stops = 6;
      map<string, int64> ways = 7;
      oneof how { bool walked = 8; Vehicle vehicle = 9; }
      message Stop { int32 seconds = 1; }
      enum Vehicle { NONE = 0; CAR = 5; }
    }
    """
    vehicle = Schema(
        Type.STRING,
        name="Vehicle",
        parameters={
            f"{NAMESPACE}.Enum": "Vehicle",
            f"{NAMESPACE}.Enum.NONE": "0",
            f"{NAMESPACE}.Enum.CAR": "5",
        },
    )
    how = {"walked": tagged(Schema(Type.BOOLEAN), 8), "vehicle": tagged(vehicle, 9)}
    price = decimal_schema(2).replace(parameters={"scale": "2", "connect.decimal.precision": "9"})
    stop = struct_of({"seconds": tagged(INT32, 1)}, name="Stop", optional=True)
    ways = map_of(tagged(STRING, 1, optional=False), tagged(INT64, 2)).replace(name="ways")
    number = INT64.replace(parameters={f"{NAMESPACE}.Type": "uint32"})
    expected = struct_of(
        {
            "how_0": struct_of(how, name=f"{NAMESPACE}.Union.how", optional=True),
            "city": tagged(STRING, 1),
            "km": tagged(INT16, 2),
            "id": tagged(number, 3),
            "price": tagged(price, 4),
            "begin": tagged(TIMESTAMP, 5),
            "stops": tagged(array_of(stop), 6),
            "ways": tagged(ways, 7),
        },
        name="Trip",
    )
    schema = ProtobufSchema(text)
    given = {
        "city": "Wien", "km": 12, "id": 4_000_000_000, "ways": {"a": "5"}, "vehicle": "CAR",
        "price": {"value": "AQI=", "scale": 2, "precision": 3}, "begin": "2026-01-01T00:00:00.5Z",
        "stops": [{"seconds": 7}, {}],
    }  # fmt: skip
    found = read(schema, schema.write(given))
    assert found.schema == expected
    assert plain(expected, found.value) == {
        "how_0": {"walked": None, "vehicle": "CAR"},
        "city": "Wien",
        "km": 12,
        "id": 4_000_000_000,
        "price": Decimal("2.58"),
        "begin": datetime(2026, 1, 1, microsecond=500_000, tzinfo=UTC),
        "stops": [{"seconds": 7}, {"seconds": 0}],
        "ways": {"a": 5},
    }
    absent = read(schema, b"\0").value
    assert plain(expected, absent) == {
        **{"how_0": None, "city": "", "km": 0, "id": 0, "price": None, "begin": None},
        **{"stops": [], "ways": {}},
    }
    # What was read is written as the same message, with the same numbers of fields.
    assert found.schema is not None
    data, _ = there_and_back(found.schema, found.value)
    assert schema.read(data) == schema.read(schema.write(given))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (ProtobufOptions(full_names=True), ["test.T", "how_0", f"{NAMESPACE}.Union.test.T.how"]),
        (ProtobufOptions(index_for_unions=False), ["T", "how", f"{NAMESPACE}.Union.how"]),
        (ProtobufOptions(flatten_unions=True), ["T", "a", None]),
    ],
)
def test_properties_change_names(options: ProtobufOptions, names: list[str | None]) -> None:
    schema = ProtobufSchema(
        'syntax = "proto3"; package test; message T { oneof how { int32 a = 1; string b = 2; } }'
    )
    found = read(schema, schema.write({"b": "x"}), options).schema
    assert found is not None
    first = found.fields[0]
    assert [found.name, first.name, first.schema.name] == names


def test_enums_may_be_numbers() -> None:
    schema = ProtobufSchema('syntax = "proto3"; message T { enum E { A = 0; B = 3; } E e = 1; }')
    data = schema.write({"e": "B"})
    assert read(schema, data, ProtobufOptions(int_for_enums=True)).value.get("e") == 3
    found = read(schema, data)
    assert found.schema is not None
    assert there_and_back(found.schema, found.value)[1].value.get("e") == "B"
    unknown = read(schema, b"\0\x08\x07")
    assert unknown.value.get("e") == "UNKNOWN_ENUM_VALUE_E_7"
    assert unknown.schema is not None
    with pytest.raises(DataException, match="no value of the enum E"):
        there_and_back(unknown.schema, unknown.value)


def test_nulls_are_kept_where_properties_say_so() -> None:
    schema = struct_of({"s": OPTIONAL_STRING, "n": OPTIONAL_INT32, "m": INT32}, name="T")
    value = Struct(schema, {"s": None, "n": None, "m": 0})
    lost = there_and_back(schema, value)[1].value
    assert lost.values == ("", 0, 0)
    for options in (NULLABLE, WRAPPED):
        found = there_and_back(schema, value, options)[1]
        assert found.schema is not None
        assert found.value.values == (None, None, 0)
        assert [field.schema.optional for field in found.schema.fields] == [True, True, False]
    assert "optional string s = 1;" in written(schema, NULLABLE)
    assert ".google.protobuf.StringValue s = 1;" in written(schema, WRAPPED)
    empty = Struct(schema, {"s": "", "n": 0, "m": 0})
    for options in (NULLABLE, WRAPPED):
        assert there_and_back(schema, empty, options)[1].value.values == ("", 0, 0)


def test_fields_of_proto2_may_be_missing() -> None:
    schema = ProtobufSchema(
        'syntax = "proto2"; message T { optional int32 a = 1 [default = 7]; required int32 b = 2; }'
    )
    data = schema.write({"b": 1})
    assert read(schema, data).value.values == (None, 1)
    assert read(schema, data, ProtobufOptions(optional_for_proto2=False)).value.values == (7, 1)


def test_unsigned_numbers_are_javas() -> None:
    schema = ProtobufSchema('syntax = "proto3"; message T { uint64 a = 1; fixed32 b = 2; }')
    found = read(schema, schema.write({"a": str(2**64 - 1), "b": 2**32 - 1}))
    assert found.value.values == (-1, 2**32 - 1)
    assert found.schema is not None
    data, again = there_and_back(found.schema, found.value)
    assert again.value == found.value
    assert schema.read(data) == {"a": str(2**64 - 1), "b": 2**32 - 1}


def test_a_default_is_written_for_null() -> None:
    schema = struct_of({"n": Schema(Type.INT32, optional=True, default=5)}, name="T")
    nothing = Struct(schema, {})
    assert there_and_back(schema, nothing, NULLABLE)[1].value.get("n") == 5
    options = ProtobufOptions(optional_for_nullables=True, ignore_default=True)
    assert there_and_back(schema, nothing, options)[1].value.get("n") is None


def test_names_are_scrubbed_if_that_is_wanted() -> None:
    schema = struct_of({"a b": INT32, "5": INT32, "_x": INT32}, name="my-ns.T T")
    with pytest.raises(DataException, match="cannot be a name in Protobuf"):
        written(schema)
    text = written(schema, ProtobufOptions(scrub_names=True))
    assert "package my_ns;" in text and "message T_T {" in text
    assert [line.split()[1] for line in text.splitlines() if line.endswith(";")][2:] == [
        *("a_b", "x5", "x_x")
    ]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (struct_of({"a": array_of(array_of(INT32))}), None),
        (struct_of({"a": map_of(STRING, array_of(INT32))}), None),
        (struct_of({"a": Schema(Type.ARRAY)}), None),
        (struct_of({"a": Schema(Type.MAP, key_schema=STRING)}), None),
        (struct_of({"a": INT32}), {"a": None}),
        (struct_of({"a": array_of(OPTIONAL_STRING)}), {"a": [None]}),
        (
            struct_of(
                {"a": struct_of({"x": INT32}, name="S"), "b": struct_of({"y": INT32}, name="S")}
            ),
            None,
        ),
    ],
)
def test_what_protobuf_cannot_have_is_told(schema: Schema, value: Any) -> None:
    with pytest.raises(DataException):
        if value is None:
            written(schema)
        else:
            struct = Struct.of(schema, list(value.values()))
            there_and_back(schema, struct)


@pytest.mark.parametrize("schema", [array_of(INT32), map_of(STRING, STRING), DATE])
def test_a_whole_record_is_a_struct_or_a_single_value(schema: Schema) -> None:
    with pytest.raises(DataException, match="A whole record cannot be"):
        raw_wrapper(schema)


def test_messages_that_contain_themselves_are_told() -> None:
    schema = ProtobufSchema('syntax = "proto3"; message T { T t = 1; }')
    with pytest.raises(DataException, match="contain themselves, as T does"):
        read(schema, b"\0")


@pytest.mark.parametrize(
    "text",
    [
        'import "google/type/date.proto"; message T { google.type.Date d = 1; }',
        'import "google/type/timeofday.proto"; message T { google.type.TimeOfDay d = 1; }',
        'import "google/protobuf/timestamp.proto"; message T { google.protobuf.Timestamp d = 1; }',
        'import "confluent/type/decimal.proto"; message T { confluent.type.Decimal d = 1; }',
    ],
)
@given(data=st.binary(max_size=24))
def test_any_bytes_of_a_logical_type_are_a_value_or_an_error(text: str, data: bytes) -> None:
    schema = ProtobufSchema(f'syntax = "proto3"; {text}')
    payload = b"\0\x0a" + bytes([len(data)]) + data
    try:
        value = read(schema, payload).value.get("d")
    except (DataException, SerializationError):
        return
    assert isinstance(value, (date, time, datetime, Decimal))


RICH = ProtobufSchema(
    """
    syntax = "proto2";
    import "google/protobuf/wrappers.proto";
    message M {
      enum E { Z = 0; A = 1; B = -2; }
      optional string text = 1;
      map<string, N> by_name = 2;
      repeated N list = 3;
      oneof how { E way = 4; bytes other = 5; google.protobuf.UInt64Value wrapped = 6; }
      repeated PairEntry pairs = 7;
      optional group Inner = 8 { optional fixed64 id = 1; }
      message N { optional double d = 1; repeated sint32 numbers = 2; }
      message PairEntry { optional uint64 key = 1; optional N value = 2; }
    }
    """
)


@pytest.mark.parametrize(
    "options", [EMPTY, NULLABLE, WRAPPED, ProtobufOptions(flatten_unions=True)]
)
@given(data=st.binary(max_size=40))
@example(data=b"\x0a\1\xff")
@example(data=b"\x12\3\x0a\1\xff")
@example(
    data=b"\x12\5\x0a\1a\x12\0" + b"\x3a\2\x08\5" + b"\x32\0" + b"\x43\x09" + bytes(8) + b"\x44"
)
def test_any_bytes_of_a_message_are_a_value_or_an_error(
    options: ProtobufOptions, data: bytes
) -> None:
    try:
        found = read(RICH, b"\0" + data, options)
    except (DataException, SerializationError):
        return
    assert found.schema is not None
    _, again = there_and_back(found.schema, found.value, options)
    if options in (NULLABLE, WRAPPED):  # as texts: NaN is not itself
        assert repr(plain(found.schema, again.value)) == repr(plain(found.schema, found.value))


@pytest.mark.parametrize("options", [NULLABLE, WRAPPED])
@given(st.data())
def test_values_come_back(options: ProtobufOptions, data: st.DataObject) -> None:
    schema, values = data.draw(structs_and_values())
    value = data.draw(values)
    _, found = there_and_back(schema, value, options)
    assert plain(schema, found.value) == plain(schema, value)
    assert found.schema is not None
    # A copy of a copy has the same bytes.
    first, again = there_and_back(found.schema, found.value, options)
    assert plain(schema, again.value) == plain(schema, value)
    assert there_and_back(again.schema or schema, again.value, options)[0] == first


def test_small_numbers_that_do_not_fit_are_told() -> None:
    schema = struct_of({"a": INT8}, name="T")
    kept = ProtobufSchema(written(schema))
    with pytest.raises(DataException, match="out of range for INT8"):
        read(kept, b"\0\x08\x80\x01")
    with pytest.raises(DataException, match="Invalid type for INT8"):
        there_and_back(schema, Struct.of(schema, [128]))


def test_bytes_and_times_of_day_come_back() -> None:
    schema = struct_of({"b": BYTES, "t": TIME, "d": DATE}, name="T")
    value = Struct(schema, {"b": b"\xff", "t": time(23, 59, 59, 999_000), "d": date(1, 1, 1)})
    assert plain(schema, there_and_back(schema, value)[1].value) == plain(schema, value)
