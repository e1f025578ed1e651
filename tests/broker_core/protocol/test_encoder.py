"""What the encoder refuses, and what it does not copy; test_definitions compares the bytes."""

from __future__ import annotations

import struct

import pytest

from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import FETCH, METADATA
from broker_core.protocol.encoder import Elements, encode, encode_response_frame
from broker_core.protocol.errors import LocalProtocolError


@pytest.mark.parametrize("version", [0, 1, 8, 12])
@pytest.mark.parametrize("value", ["k", "v" * 5_000])
def test_elements_that_are_encoded_as_they_come_are_the_same_message(
    version: int, value: str
) -> None:
    plan = METADATA.response_plan(version)
    parts = [{"partition_index": index, "replica_nodes": [1, 2]} for index in range(100)]
    topics = [
        {"name": f"{value}{number}", "topic_id": bytes(16), "partitions": parts}
        for number in range(30)
    ]
    message = {"brokers": [], "controller_id": 7, "topics": topics}
    elements = Elements(plan, "topics")
    for first in range(0, 30, 7):
        elements.extend(topics[first : first + 7])
    assert len(elements) == 30
    assert encode(plan, message | {"topics": elements}) == encode(plan, message)
    none = Elements(plan, "topics")
    assert encode(plan, message | {"topics": none}) == encode(plan, message | {"topics": []})


@pytest.mark.parametrize("name", ["controller_id", "no_field"])
def test_only_arrays_have_elements(name: str) -> None:
    with pytest.raises(LocalProtocolError, match=name):
        Elements(METADATA.response_plan(9), name)


def test_large_payloads_of_a_response_are_not_copied() -> None:
    records = bytes(100_000)
    response = {
        "responses": [
            {
                "topic": "t",
                "partitions": [
                    {"partition_index": 0, "records": records},
                    {"partition_index": 1, "records": b"small"},
                ],
            }
        ]
    }
    parts = encode_response_frame(FETCH.response_plan(11), 7, False, response)
    assert any(part is records for part in parts)
    frame = b"".join(parts)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 7)
    decoded, end = decode(FETCH.response_plan(11), memoryview(frame), 8)
    assert end == len(frame)
    assert decoded["responses"][0]["partitions"][1]["records"] == b"small"


@pytest.mark.parametrize(
    ("field", "value"), [("max_wait_ms", 2**31), ("max_wait_ms", "x"), ("rack_id", 7)]
)
def test_a_value_that_does_not_fit_is_our_mistake(field: str, value: object) -> None:
    with pytest.raises(LocalProtocolError, match=field):
        encode(FETCH.request_plan(11), {field: value})
