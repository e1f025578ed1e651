"""How a record says which schema it was written with."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.serialization.schema_ids import (
    Framed,
    SchemaId,
    header_name,
    split,
    with_header,
    with_prefix,
)
from waylog.serialization.serializer import RecordPart, SerializationError

GUID = "6cc3c741-58fa-09b4-6db2-11b6b5f2ce0a"


def test_the_prefix_is_confluents() -> None:
    data, headers = with_prefix(258, b"value")
    assert (data, list(headers)) == (b"\0\0\0\1\2value", [])
    assert split(RecordPart.VALUE, data or b"") == Framed(SchemaId(258), b"", b"value")


def test_the_header_is_confluents() -> None:
    data, headers = with_header(RecordPart.KEY, GUID, b"key")
    assert list(headers) == [("__key_schema_id", b"\1" + uuid.UUID(GUID).bytes)]
    assert split(RecordPart.KEY, data or b"", headers) == Framed(SchemaId(None, GUID), b"", b"key")
    # The header of the key says nothing about the value.
    with pytest.raises(SerializationError, match="does not begin"):
        split(RecordPart.VALUE, data or b"", headers)


def test_the_place_of_a_message_of_protobuf_is_in_the_header_too() -> None:
    data, headers = with_header(RecordPart.VALUE, GUID, b"value", b"\4\2\0")
    assert split(RecordPart.VALUE, data or b"", headers) == Framed(
        SchemaId(None, GUID), b"\4\2\0", b"value"
    )
    short = [(header_name(RecordPart.VALUE), b"\0\0\0\0\7\0")]
    assert split(RecordPart.VALUE, b"value", short) == Framed(SchemaId(7), b"\0", b"value")


def test_a_header_comes_before_a_prefix() -> None:
    headers = [(header_name(RecordPart.VALUE), b"\0\0\0\0\7"), ("other", b"x")]
    data = b"\0\0\0\0\1x"
    assert split(RecordPart.VALUE, data, headers) == Framed(SchemaId(7), b"", data)


@pytest.mark.parametrize("data", [b"", b"\1", b"{}", b"\0", b"\0\0\0\0", b"\0\xff\0\0\0x"])
def test_bytes_without_an_id_are_told(data: bytes) -> None:
    with pytest.raises(SerializationError):
        split(RecordPart.VALUE, data)


@given(st.binary(max_size=40), st.binary(max_size=20))
def test_any_bytes_have_an_id_or_are_told(data: bytes, header: bytes) -> None:
    for headers in ([], [(header_name(RecordPart.VALUE), header)]):
        try:
            schema_id, place, payload = split(RecordPart.VALUE, data, headers)
        except SerializationError:
            continue
        assert data.endswith(payload) and header.endswith(place)
        assert (schema_id.number is None) != (schema_id.guid is None)
