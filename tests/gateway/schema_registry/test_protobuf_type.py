"""Protobuf in the registry: what is kept, and which changes a reader understands."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="Protobuf needs pip install 'waylog[protobuf]'")

from gateway.schema_registry.errors import RegistryError
from gateway.schema_registry.parsed import ParsedSchema, Referenced
from gateway.schema_registry.records import Reference
from gateway.schema_registry.schema_types import incompatibilities, parse
from waylog.serialization.protobuf_schema import ProtobufSchema

HEAD = 'syntax = "proto3"; package trips; '


def parsed(text: str, **more: Any) -> ParsedSchema:
    return parse("PROTOBUF", text, (), (), **more)


def message(*fields: str, head: str = HEAD) -> ParsedSchema:
    return parsed(f"{head}message Trip {{ {' '.join(fields)} }}")


def kinds(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    return [each.split("'")[1] for each in incompatibilities(reader, writer)]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (["string city = 1;"], ["string city = 1;", "int32 km = 2;"]),
        (["string city = 1;", "int32 km = 2;"], ["string city = 1;"]),
        (["string city = 1;"], ["bytes town = 1;"]),
        (["int32 km = 1;"], ["uint64 km = 1;"]),
        (["int32 km = 1;"], ["bool km = 1;"]),
        (["sint32 km = 1;"], ["sint64 km = 1;"]),
        (["repeated string city = 1;"], ["string city = 1;"]),
        (["enum K { A = 0; }", "K kind = 1;"], ["enum K { A = 0; B = 1; }", "K kind = 1;"]),
        (["enum K { A = 0; }", "K kind = 1;"], ["int32 kind = 1;"]),
        (["string city = 1;"], ["oneof place { string city = 1; }"]),
        (["oneof place { string city = 1; }"], ["oneof place { string city = 1; bytes b = 2; }"]),
        (["oneof place { string city = 1; }"], ["string city = 1;"]),
        (["optional int32 km = 1;"], ["int32 km = 1;"]),
        (["map<string, int32> a = 1;"], ["map<string, int64> a = 1;"]),
        (["Trip next = 1;"], ["Trip next = 1;", "int32 km = 2;"]),
    ],
)
def test_changes_that_a_reader_understands(writer: list[str], reader: list[str]) -> None:
    assert kinds(message(*reader), message(*writer)) == []


@pytest.mark.parametrize(
    ("writer", "reader", "kind"),
    [
        (["int32 km = 1;"], ["string km = 1;"], "FIELD_SCALAR_KIND_CHANGED"),
        (["int32 km = 1;"], ["sint32 km = 1;"], "FIELD_SCALAR_KIND_CHANGED"),
        (["fixed32 km = 1;"], ["fixed64 km = 1;"], "FIELD_SCALAR_KIND_CHANGED"),
        (["float km = 1;"], ["double km = 1;"], "FIELD_SCALAR_KIND_CHANGED"),
        (["Trip next = 1;"], ["string next = 1;"], "FIELD_KIND_CHANGED"),
        (["map<string, int32> a = 1;"], ["Trip a = 1;"], "FIELD_KIND_CHANGED"),
        (["map<string, int32> a = 1;"], ["map<string, string> a = 1;"],
         "FIELD_SCALAR_KIND_CHANGED"),
        (["repeated int32 km = 1;"], ["int32 km = 1;"], "FIELD_NUMERIC_LABEL_CHANGED"),
        (["message A {}", "A a = 1;"], ["message A {}", "message B {}", "B a = 1;"],
         "FIELD_NAMED_TYPE_CHANGED"),
        (["message A {}"], ["int32 km = 1;"], "MESSAGE_REMOVED"),
        (["message A { int32 a = 1; }", "A a = 1;"], ["message A { string a = 1; }", "A a = 1;"],
         "FIELD_SCALAR_KIND_CHANGED"),
        (["string a = 1;", "string b = 2;"], ["oneof x { string a = 1; string b = 2; }"],
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
        (["oneof x { string a = 1; }", "string b = 2;"],
         ["oneof x { string a = 1; string b = 2; }"], "FIELD_MOVED_TO_EXISTING_ONEOF"),
        (["oneof x { string a = 1; string b = 2; }"], ["oneof x { string a = 1; }"],
         "ONEOF_FIELD_REMOVED"),
    ],
)  # fmt: skip
def test_changes_that_no_reader_understands(
    writer: list[str], reader: list[str], kind: str
) -> None:
    assert kind in kinds(message(*reader), message(*writer))


def test_a_required_field_is_never_added_or_removed() -> None:
    old = message("optional int32 a = 1;", head='syntax = "proto2"; ')
    new = message("optional int32 a = 1;", "required int32 b = 2;", head='syntax = "proto2"; ')
    assert kinds(new, old) == ["REQUIRED_FIELD_ADDED"]
    assert kinds(old, new) == ["REQUIRED_FIELD_REMOVED"]


def test_the_package_may_change_and_a_message_of_the_file_may_not_go() -> None:
    old = parsed('syntax = "proto3"; package a; message X { Y y = 1; } message Y { int32 n = 1; }')
    moved = parsed(
        'syntax = "proto3"; package b; message X { Y y = 1; } message Y { int32 n = 1; }'
    )
    assert kinds(moved, old) == []
    assert kinds(parsed('syntax = "proto3"; message X {}'), old) == ["MESSAGE_REMOVED"]


def test_messages_that_are_imported_are_compared_too() -> None:
    use = 'syntax = "proto3"; import "place.proto"; message Trip { Place to = 1; }'
    place = 'syntax = "proto3"; message Place { %s name = 1; }'
    reference = (Reference("place.proto", "places", 1),)
    old, new = (
        parse("PROTOBUF", use, reference, [Referenced("place.proto", place % kind)])
        for kind in ("int32", "string")
    )
    assert kinds(new, old) == ["FIELD_SCALAR_KIND_CHANGED"]
    with pytest.raises(RegistryError, match=r"no reference has the name 'place\.proto'"):
        parsed(use)


def test_the_same_schema_is_the_same_in_every_form() -> None:
    text = f"{HEAD}// a comment\nmessage Trip {{ int32 km=2; string city=1; Trip next = 3; }}"
    assert parsed(text).guid == parsed(parsed(text).text).guid
    assert "comment" not in parsed(text).text
    descriptor = base64.b64encode(ProtobufSchema(text).resolved.SerializeToString()).decode()
    # A descriptor has full names and the order of the text; normalized they are the same.
    assert parsed(descriptor, normalize=True).guid == parsed(text, normalize=True).guid
    ordered = f"{HEAD}message Trip {{ string city = 1; int32 km = 2; trips.Trip next = 3; }}"
    assert parsed(ordered, normalize=True).guid == parsed(text, normalize=True).guid
    assert parsed(ordered).guid != parsed(text).guid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto4";', "proto2 or proto3"),
        ("message A { int32 a = 1; int32 b = 1; }", "1"),
        ("message A { Missing a = 1; }", "Missing"),
        ("message A { optional int32 a = 1;", "the text ends"),
        ("message A { optional int32 a = 99999999999; }", "within bounds"),
        ("message A {" * 40, "32 levels"),
        ("{}", "line 1"),
        ('import "schema.proto";', "import"),
        ("\x00", "nothing of Protobuf's"),
        ("x" * 1_100_000, "longer than"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(RegistryError, match=reason) as refused:
        parsed(text)
    assert refused.value.code == 42201
