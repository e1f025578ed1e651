"""Decoding of requests, encoding of responses."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_core.protocol.definitions import API_VERSIONS, APIS, METADATA
from broker_core.protocol.definitions.messages import decode_request, encode_response
from broker_core.protocol.encoder import encode
from broker_core.protocol.errors import RemoteProtocolError


def request(key: int, version: int, body: bytes, *, flexible: bool = False) -> memoryview:
    header = struct.pack(">hhih", key, version, 42, 2) + b"me" + (b"\0" if flexible else b"")
    return memoryview(bytearray(header + body))


def test_a_request_is_read_with_its_header() -> None:
    body = encode(METADATA.request_plan(9), {"topics": [{"name": "t"}]})
    header, message = decode_request(request(3, 9, body, flexible=True))
    assert (header.api, header.version, header.correlation_id, header.client_id) == (
        METADATA,
        9,
        42,
        "me",
    )
    assert message is not None
    assert message["topics"][0]["name"] == "t"


def test_an_unknown_api_key_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="API key 999"):
        decode_request(request(999, 0, b""))


@pytest.mark.parametrize("version", [-1, 99])
def test_a_version_that_is_not_served_is_refused(version: int) -> None:
    with pytest.raises(RemoteProtocolError, match="Metadata version"):
        decode_request(request(3, version, b""))


def test_api_versions_of_the_future_is_answered_in_version_0() -> None:
    header, message = decode_request(request(18, 99, b"whatever"))
    assert message is None
    answer = b"".join(
        encode_response(header, {"error_code": 35, "api_keys": []})  # type: ignore[arg-type]
    )
    assert answer == struct.pack(">iihi", 10, 42, 35, 0)


def test_the_header_of_an_api_versions_response_never_has_tagged_fields() -> None:
    header, _ = decode_request(
        request(18, 3, encode(API_VERSIONS.request_plan(3), {}), flexible=True)
    )
    assert b"".join(encode_response(header, {}))[8:10] == b"\0\0"  # type: ignore[arg-type]


@settings(max_examples=500)
@given(st.binary(max_size=200))
@example(b"")
def test_random_frames_are_read_or_refused(data: bytes) -> None:
    try:
        decode_request(memoryview(bytearray(data)))
    except RemoteProtocolError:
        return


@settings(max_examples=500)
@given(st.sampled_from(sorted(APIS)), st.data())
def test_random_bodies_are_read_or_refused(key: int, data: st.DataObject) -> None:
    api = APIS[key]
    version = data.draw(st.integers(*api.versions))
    body = data.draw(st.binary(max_size=200))
    try:
        decode_request(request(key, version, body, flexible=api.is_flexible(version)))
    except RemoteProtocolError:
        return
