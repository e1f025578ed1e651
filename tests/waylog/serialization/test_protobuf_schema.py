"""Protobuf: texts of schemas, values, and the place of a message in front of them."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="Protobuf needs pip install 'waylog[protobuf]'")

from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from waylog.serialization.protobuf_meta import field_parameters
from waylog.serialization.protobuf_parser import parse_proto
from waylog.serialization.protobuf_printer import proto_text
from waylog.serialization.protobuf_schema import ProtobufSchema
from waylog.serialization.serializer import SerializationError

TRIPS = """
// Trips of devices.
syntax = "proto3";
package trips.v1;
import "google/protobuf/timestamp.proto";
import public 'place.proto';
option java_package = "org.example";
option (own).level = { a: [1, 2] b: "x" };
message Trip {
  reserved 8, 10 to 12, 100 to max;
  reserved "old", "older";
  string city = 1 [deprecated = true, json_name = "town"];
  optional double km = 2;
  repeated Stop stops = 3;
  map<string, .places.Place> places = 4;
  oneof how { bool walked = 5; Vehicle vehicle = 6; }
  google.protobuf.Timestamp begin = 7;
  int64 metres = 9;
  bytes image = 13;
  message Stop { int32 seconds = 1; message Reason { string text = 1; } Reason why = 2; }
  enum Vehicle { option allow_alias = true; NONE = 0; CAR = 1; AUTO = 1; MINUS = -3; }
}
message Other { uint32 number = 1; }
service Planner { rpc Plan (stream Other) returns (Trip) { option deprecated = true; } }
"""
PLACES = """
syntax = "proto2";
package places;
message Place {
  required string name = 1 [default = "a \\"b\\" \\303\\266"];
  optional float height = 2 [default = -1.5e3];
  optional group Inner = 3 { optional int32 x = 1; }
  extensions 100 to 199;
}
extend Place { optional int32 rank = 100; }
"""
VALUE: dict[str, Any] = {
    "city": "Wien",
    "km": 1.5,
    "stops": [{"seconds": 7, "why": {"text": "x"}}],
    "places": {"home": {"name": "n"}},
    "vehicle": "CAR",
    "begin": "2026-01-01T00:00:00Z",
    "metres": "9007199254740993",
    "image": base64.b64encode(b"\0\xff").decode(),
}


@pytest.fixture(scope="module")
def schema() -> ProtobufSchema:
    return ProtobufSchema(TRIPS, {"place.proto": PLACES})


def test_a_text_is_printed_so_that_it_means_the_same(schema: ProtobufSchema) -> None:
    for text in (TRIPS, PLACES):
        file = parse_proto(text, "x.proto")
        assert parse_proto(proto_text(file), "x.proto") == file
    for part in (
        "reserved 8, 10 to 12, 100 to max;",
        "map<string, .places.Place> places = 4;",
        'string city = 1 [json_name = "town", deprecated = true];',
        'option (own).level = { a : [ 1 , 2 ] b : "x" };',
        "rpc Plan (stream Other) returns (Trip) {",
        'import public "place.proto";',
    ):
        assert part in schema.text
    assert "group Inner = 3 {" in proto_text(parse_proto(PLACES, "x.proto"))


@pytest.mark.parametrize("file", [timestamp_pb2, duration_pb2, descriptor_pb2])
def test_descriptors_of_protoc_come_back(file: Any) -> None:
    theirs = descriptor_pb2.FileDescriptorProto()
    file.DESCRIPTOR.CopyToProto(theirs)
    theirs.ClearField("options")  # editions and features are not Protobuf's text here
    for message in theirs.message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert proto_text(parse_proto(proto_text(theirs), theirs.name)) == proto_text(theirs)


def test_a_value_comes_back(schema: ProtobufSchema) -> None:
    data = schema.write(VALUE)
    assert data[:1] == b"\0" and schema.name == "trips.v1.Trip"
    assert schema.read(data) == VALUE
    absent = schema.read(b"\0")
    assert absent["city"] == "" and "km" not in absent and absent["stops"] == []


@pytest.mark.parametrize(
    ("message", "place", "value"),
    [
        ("trips.v1.Other", b"\2\2", {"number": 5}),
        ("trips.v1.Trip.Stop", b"\4\0\2", {"seconds": 5}),
        ("trips.v1.Trip.Stop.Reason", b"\6\0\2\0", {"text": "x"}),
    ],
)
def test_other_messages_of_a_file_are_written_with_their_place(
    schema: ProtobufSchema, message: str, place: bytes, value: dict[str, Any]
) -> None:
    writer = ProtobufSchema(TRIPS, {"place.proto": PLACES}, message=message)
    data = writer.write(value)
    assert data.startswith(place) and writer.name == message
    assert schema.read(data) == value


@pytest.mark.parametrize(
    ("file", "type_", "value"),
    [
        ("google/protobuf/duration.proto", "google.protobuf.Duration", "2s"),
        ("google/type/date.proto", "google.type.Date", {"year": 2026, "month": 11, "day": 28}),
        ("confluent/type/decimal.proto", "confluent.type.Decimal", {"value": "AQ==", "scale": 2,
                                                                    "precision": 3}),
        ("confluent/meta.proto", "confluent.Meta", {"doc": "d", "params": {"a": "b"}, "tags": [],
                                                    "rules": []}),
    ],
)  # fmt: skip
def test_files_that_everybody_knows_need_no_reference(file: str, type_: str, value: Any) -> None:
    text = f'syntax = "proto3"; import "{file}"; message T {{ {type_} t = 1; }}'
    schema = ProtobufSchema(text)
    assert schema.read(schema.write({"t": value})) == {"t": value}


def test_what_a_descriptor_says_in_extensions_is_kept_in_the_text() -> None:
    """Of Confluent's; the small integers and scales of Connect are there."""
    meta_pb2 = pytest.importorskip("confluent_kafka.schema_registry.confluent.meta_pb2")
    file = parse_proto(
        'syntax = "proto3"; import "confluent/meta.proto"; '
        "message T { int32 a = 1; message N { enum E { Z = 0; } } }",
        "x.proto",
    )
    (message,) = file.message_type
    said = message.field[0].options.Extensions[meta_pb2.field_meta]
    said.params["connect.type"] = 'in"t8'
    message.options.Extensions[meta_pb2.message_meta].doc = "d"
    value = message.nested_type[0].enum_type[0].value[0]
    value.options.Extensions[meta_pb2.enum_value_meta].tags.append("PII")
    schema = ProtobufSchema(base64.b64encode(file.SerializeToString()).decode())
    assert 'int32 a = 1 [(confluent.field_meta) = { params { key : "connect.type"' in schema.text
    assert 'option (confluent.message_meta) = { doc : "d" };' in schema.text
    assert 'Z = 0 [(confluent.enum_value_meta) = { tags : "PII" }];' in schema.text
    assert ProtobufSchema(schema.text).text == schema.text
    assert field_parameters(schema.file.message_type[0].field[0]) == {"connect.type": 'in"t8'}


@pytest.mark.parametrize(
    ("option", "parameters"),
    [
        ('(confluent.field_meta) = { params: [ { key: "a", value: "b" } ] }', {"a": "b"}),
        ('(confluent.field_meta).params = { key: "a", value: "b" }', {"a": "b"}),
        ('(.confluent.field_meta).doc = "x"', {}),
        ('(other.field_meta) = { params: { key: "a" } }', {}),
        ("(confluent.field_meta) = { nonsense: 5 }", {}),
    ],
)
def test_parameters_of_a_field_are_read(option: str, parameters: dict[str, str]) -> None:
    file = parse_proto(f'syntax = "proto3"; message T {{ int32 a = 1 [{option}]; }}', "x.proto")
    assert field_parameters(file.message_type[0].field[0]) == parameters


def test_a_message_is_written_as_its_dict_is(schema: ProtobufSchema) -> None:
    message = schema.new_message()
    message.city, message.km = "Wien", 1.5
    data = schema.write(message)
    assert data == schema.write({"city": "Wien", "km": 1.5})
    assert schema.read_message(data) == message
    assert data.startswith(schema.place)


KINDS = """
syntax = "proto3";
package kinds;
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
message All {
  int64 a = 1; uint64 b = 2; sint64 c = 3; fixed64 d = 4; sfixed64 e = 5; int32 f = 6;
  double g = 7; float h = 8; bytes i = 9; string j = 10; bool k = 11; Kind l = 12;
  repeated int64 m = 13; map<int64, bytes> n = 14; map<string, All> o = 15; All p = 16;
  repeated All q = 17; google.protobuf.Int64Value r = 18; google.protobuf.BytesValue s = 19;
  repeated google.protobuf.DoubleValue t = 20; google.protobuf.Timestamp u = 21;
  google.protobuf.Struct v = 22; google.protobuf.ListValue w = 23; optional int64 x = 24;
  enum Kind { NONE = 0; SOME = 1; }
}
"""


def test_numbers_and_bytes_are_such_for_other_formats() -> None:
    schema = ProtobufSchema(KINDS)
    big = (1 << 63) - 1
    value: dict[str, Any] = {
        "a": -big, "b": big * 2, "c": -1, "d": 4, "e": -5, "f": 6, "g": float("inf"), "h": 0.5,
        "i": b"AAAA", "j": "1", "k": True, "l": "SOME", "m": [1, -2], "n": {"7": b"\0"},
        "o": {"x": {"a": 1}}, "p": {"i": b"\xff"}, "q": [{"a": 3}, {}], "r": 8, "s": b"AAAA",
        "t": [1.5, float("-inf")], "u": "2026-11-28T12:00:00Z", "v": {"a": "1", "b": [1.0]},
        "w": ["1", 2.0], "x": 0,
    }  # fmt: skip
    read = schema.read_named(schema.write(value))
    assert (read.schema_type, read.name) == ("PROTOBUF", "kinds.All")
    empty = schema.read_named(schema.write({})).value
    # What has no presence is there in messages of which it was not said.
    assert read.value == value | {
        "o": {"x": empty | {"a": 1}},
        "p": empty | {"i": b"\xff"},
        "q": [empty | {"a": 3}, empty],
    }
    assert (empty["a"], empty["i"], empty["m"], empty["n"]) == (0, b"", [], {})
    # It is written again as it was read, and the texts of Protobuf's JSON are, too.
    assert schema.write(read.value) == schema.write(value) == schema.write(_json_of(value))


def _json_of(value: dict[str, Any]) -> Any:
    schema = ProtobufSchema(KINDS)
    return schema.read(schema.write(value))


def test_equal_values_give_equal_bytes() -> None:
    schema = ProtobufSchema(KINDS)
    names = [f"name-{number}" for number in range(50)]
    first = schema.write({"v": dict.fromkeys(names, 1.0), "n": {"2": b"", "1": b""}})
    for _ in range(20):
        names.reverse()
        again = schema.write({"v": dict.fromkeys(names, 1.0), "n": {"1": b"", "2": b""}})
        assert again == first


def test_bytes_are_written_as_they_are() -> None:
    schema = ProtobufSchema(TRIPS, {"place.proto": PLACES})
    for image in (b"AAAA", b"\0\xff", b""):
        written = schema.write({"image": image})
        assert schema.read(written)["image"] == base64.b64encode(image).decode()


def test_the_name_is_that_of_the_message_that_was_written() -> None:
    schema = ProtobufSchema(TRIPS, {"place.proto": PLACES})
    other = ProtobufSchema(TRIPS, {"place.proto": PLACES}, message="trips.v1.Other")
    assert schema.read_named(other.write({"number": 1})).name == "trips.v1.Other"
    assert schema.read_named(other.write({"number": 1}), schema).name == "trips.v1.Trip"


def test_readers_of_other_ages_understand_each_other() -> None:
    old = ProtobufSchema('syntax = "proto3"; message T { string city = 1; }')
    new = ProtobufSchema('syntax = "proto3"; message T { string town = 1; int32 km = 2; }')
    assert new.read(old.write({"city": "Wien"}), new) == {"town": "Wien", "km": 0}
    assert old.read(new.write({"town": "Wien", "km": 3}), old) == {"city": "Wien"}


@pytest.mark.parametrize("value", [{"nope": 1}, {"km": "x"}, {"stops": 5}, [], "x", {"city": 5}])
def test_a_value_of_another_form_is_refused(schema: ProtobufSchema, value: Any) -> None:
    with pytest.raises(SerializationError, match=r"no trips\.v1\.Trip"):
        schema.write(value)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    schema = ProtobufSchema('syntax = "proto3"; message T { T t = 1; }')
    value: dict[str, Any] = {}
    for _ in range(500):
        value = {"t": value}
    with pytest.raises(SerializationError):
        schema.write(value)
    data = b""
    for _ in range(300):
        length, size = bytearray(), len(data)
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        data = b"\x0a" + bytes([*length, size]) + data
    with pytest.raises(SerializationError):
        schema.read(b"\0" + data)


@given(st.binary(max_size=40))
@example(b"\x80" * 6)
@example(b"\x02")
@example(b"\xfe\xff\xff\xff\x0f")
def test_any_bytes_are_a_value_or_an_error_of_that_value(data: bytes) -> None:
    schema = ProtobufSchema('syntax = "proto3"; message T { string a = 1; repeated int32 b = 2; }')
    with suppress(SerializationError):
        assert isinstance(schema.read(data), dict)


_WORDS = st.sampled_from(
    [
        *("syntax", "=", '"proto3"', ";", "message", "A", "{", "}", "enum", "oneof", "map", "<"),
        *(">", ",", "int32", "string", "1", "0x7", "-", "[", "]", "(", ")", "extend", "option"),
        *("reserved", "to", "max", "group", "optional", "repeated", "required", "service", "rpc"),
        *("returns", "stream", ".", "default", '"\\q"', "1.5e3", "import", "package", "//\n"),
        *("extensions", "0", "00", "09", "99999999999999999999", "/* */", "json_name", "true"),
    ]
)


@given(st.lists(_WORDS, max_size=40).map(" ".join))
@example("message A { optional group")
@example("message A {")
@example('option java_package = "\\377";')
@example("enum E { A = 0 [")
def test_any_text_is_a_schema_or_an_error(text: str) -> None:
    try:
        schema = ProtobufSchema(text)
    except SerializationError:
        return
    assert ProtobufSchema(schema.text).text == schema.text
