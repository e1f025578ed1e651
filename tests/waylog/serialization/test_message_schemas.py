"""Avro schemas of the platform's messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.messages import Address, Event, Fix, Rejected
from waylog.serialization.avro_schema import AvroSchema
from waylog.serialization.message_schemas import MessageSchema
from waylog.serialization.serializer import SerializationError

CLASSES = (Fix, Address, Event, Rejected)
#: Whole numbers that are moments; a new one is to be judged here and in message_schemas.py.
TIMES = {"time", "received", "resolved"}


@pytest.mark.parametrize("class_", CLASSES)
def test_each_member_is_a_field(class_: type[msgspec.Struct]) -> None:
    fields = json.loads(MessageSchema(class_).text)["fields"]
    members = msgspec.structs.fields(class_)
    assert [field["name"] for field in fields] == [each.name for each in members]
    for field, member in zip(fields, members, strict=True):
        # What readers of another age lack has a default here if, and only if, it has one there.
        assert ("default" in field) != member.required
        if member.type is int:
            assert member.name in TIMES
            assert field["type"] == {"type": "long", "logicalType": "timestamp-millis"}


def test_the_schema_of_a_fix_is_known() -> None:
    schema = json.loads(MessageSchema(Fix).text)
    assert (schema["namespace"], schema["name"]) == ("waylog", "Fix")
    by_name = {field["name"]: field for field in schema["fields"]}
    assert by_name["lat"] == {"name": "lat", "type": "double"}
    assert by_name["speed"] == {"name": "speed", "type": ["null", "double"], "default": None}
    assert by_name["attributes"]["type"] == ["null", "string"]


_text = st.text(max_size=8)
_float = st.floats(allow_nan=False, allow_infinity=False)
_time = st.integers(-(2**53), 2**53)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _text,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(_text, each, max_size=3),
    max_leaves=5,
)


def _messages() -> st.SearchStrategy[Any]:
    optional = {"accuracy": st.none() | _float, "battery": st.none() | _float}
    attributes = st.none() | st.dictionaries(_text, _json, max_size=3)
    return st.one_of(
        st.builds(
            Fix, id=_text, device=_text, user=_text, lat=_float, lon=_float, time=_time,
            received=_time, charging=st.none() | st.booleans(), attributes=attributes, **optional,
        ),
        st.builds(
            Address, device=_text, fix_id=_text, time=_time, lat=_float, lon=_float,
            display_name=_text, address=st.dictionaries(_text, _text, max_size=3),
            distance=st.none() | _float, resolved=_time, index_version=_text,
        ),
        st.builds(
            Event, id=_text, device=_text, user=_text, type=_text, time=_time, received=_time,
            attributes=attributes,
        ),
        st.builds(
            Rejected, reason=_text, source=_text, time=_time, raw=st.binary(max_size=8),
            headers=st.none() | st.dictionaries(_text, _text, max_size=3),
        ),
    )  # fmt: skip


SCHEMAS: dict[type, MessageSchema[Any]] = {each: MessageSchema(each) for each in CLASSES}


@given(_messages())
def test_a_message_comes_back(message: msgspec.Struct) -> None:
    schema = SCHEMAS[type(message)]
    avro = AvroSchema(schema.text)
    assert schema.from_avro(avro.read(avro.write(schema.to_avro(message)))) == message


def test_a_fix_of_an_older_writer_is_read() -> None:
    schema = json.loads(MessageSchema(Fix).text)
    older = schema | {"fields": [each for each in schema["fields"] if "default" not in each]}
    record: dict[str, Any] = {"id": "1", "device": "a/b", "user": "a", "lat": 1.0, "lon": 2.0}
    record |= {"time": 3, "received": 4}
    written = AvroSchema(json.dumps(older)).write(record)
    newer = AvroSchema(MessageSchema(Fix).text)
    read = AvroSchema(json.dumps(older)).read(written, newer)
    assert MessageSchema(Fix).from_avro(read) == Fix(**record)
    # And the other way round: fields that the reader does not know are left out.
    whole = newer.write(MessageSchema(Fix).to_avro(Fix(**record, speed=1.5)))
    assert newer.read(whole, AvroSchema(json.dumps(older))) == record


@pytest.mark.parametrize(
    "record", [None, 5, {}, {"id": 5}, {"attributes": "{"}, {"attributes": "[" * 100_000}]
)
def test_what_is_no_message_is_told(record: Any) -> None:
    with pytest.raises(SerializationError):
        MessageSchema(Fix).from_avro(record)


def test_a_member_without_avro_is_told() -> None:
    class Odd(msgspec.Struct):
        values: list[int]

    with pytest.raises(TypeError, match="values"):
        MessageSchema(Odd)
