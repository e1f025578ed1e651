"""Bounds, limits and refusals of the decoder; test_definitions compares the messages."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.protocol.decoder import (
    STRING_MAX,
    decode,
    decode_request_header,
    skip_tagged_fields,
)
from broker_core.protocol.definitions import APIS, FETCH, INIT_PRODUCER_ID, METADATA, PRODUCE
from broker_core.protocol.encoder import encode
from broker_core.protocol.errors import LocalProtocolError, RemoteProtocolError

PLANS = [
    plan
    for api in APIS.values()
    for version in range(api.versions[0], api.versions[1] + 1)
    for plan in (api.request_plan(version), api.response_plan(version))
]


@settings(max_examples=400)
@given(st.sampled_from(PLANS), st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(plan: Any, data: bytes) -> None:
    try:
        message, end = decode(plan, memoryview(data))
    except RemoteProtocolError:
        return
    assert end <= len(data)
    assert encode(plan, message) is not None


@settings(max_examples=300)
@given(st.data())
def test_a_message_that_is_cut_anywhere_is_refused_or_shorter(data: st.DataObject) -> None:
    whole = encode(
        METADATA.request_plan(4),
        {"topics": [{"name": "abc"}, {"name": "d"}], "allow_auto_topic_creation": True},
    )
    cut = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    with pytest.raises(RemoteProtocolError):
        decode(METADATA.request_plan(4), whole[:cut])


@pytest.mark.parametrize("count", [2**31 - 1, 100_001, -2, -(2**31)])
def test_an_absurd_array_count_is_refused_before_anything_is_allocated(count: int) -> None:
    data = struct.pack(">i", count) + bytes(1000)
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError):
        decode(METADATA.request_plan(1), data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_million_empty_names_are_refused() -> None:
    data = struct.pack(">i", 1_000_000) + bytes(2_000_000)
    with pytest.raises(RemoteProtocolError, match="50000 array elements"):
        decode(METADATA.request_plan(1), data)


def test_a_million_tagged_fields_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="1000000 tagged fields"):
        skip_tagged_fields(b"\xc0\x84\x3d" + bytes(2_000_000), 0)


def test_an_endless_varint_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="32 bits"):
        skip_tagged_fields(b"\xff" * 10, 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(FETCH.request_plan(12), {"topics": [], "rack_id": "r"})
    assert plain[-1:] == b"\x00"
    message, end = decode(FETCH.request_plan(12), plain[:-1] + b"\x01\x63\x02ab")
    assert message["rack_id"] == "r"
    assert end == len(plain) + 4


def test_a_name_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        decode(METADATA.request_plan(1), b"\x00\x00\x00\x01\x00\x02\xff\xfe")


def test_null_where_none_is_allowed_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="null"):
        decode(METADATA.request_plan(0), b"\xff\xff\xff\xff")
    with pytest.raises(LocalProtocolError, match="null"):
        encode(METADATA.request_plan(0), {"topics": None})


def test_records_are_a_writable_slice_of_the_buffer_they_came_in() -> None:
    request = {
        "acks": -1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": b"abcdef"}]}],
    }
    buffer = bytearray(encode(PRODUCE.request_plan(8), request))
    message, _ = decode(PRODUCE.request_plan(8), memoryview(buffer))
    records = message["topic_data"][0]["partition_data"][0]["records"]
    records[0:1] = b"X"
    assert b"Xbcdef" in buffer


def test_a_header_without_its_client_id_is_refused() -> None:
    header = struct.pack(">hhih", 18, 0, 1, 2) + b"ab"
    assert decode_request_header(header) == (18, 0, 1, "ab", len(header))
    for cut in range(len(header)):
        with pytest.raises(RemoteProtocolError):
            decode_request_header(header[:cut])


def test_a_string_in_a_request_is_at_most_what_every_version_can_carry() -> None:
    body = {"transactional_id": "x" * STRING_MAX, "transaction_timeout_ms": 1000}
    plan = INIT_PRODUCER_ID.request_plan(2)
    message, _ = decode(plan, encode(plan, body), 0, STRING_MAX)
    assert message["transactional_id"] == body["transactional_id"]
    longer = encode(plan, body | {"transactional_id": "x" * (STRING_MAX + 1)})
    with pytest.raises(RemoteProtocolError, match="transactional_id is a string of 32768 bytes"):
        decode(plan, longer, 0, STRING_MAX)
    # In what is stored, and in answers, it may be longer.
    decode(plan, longer)


@pytest.mark.parametrize(("size", "is_taken"), [(10_922, True), (10_923, False)])
def test_a_client_id_that_is_not_utf8_is_not_longer_than_others_when_it_is_read(
    size: int, is_taken: bool
) -> None:
    header = struct.pack(">hhih", 18, 0, 1, size) + b"\xff" * size
    if is_taken:
        assert len((decode_request_header(header)[3] or "").encode()) <= STRING_MAX
    else:
        with pytest.raises(RemoteProtocolError, match="UTF-8"):
            decode_request_header(header)
