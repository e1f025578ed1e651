"""The fast parser of our own JSON makes the same records as the complete one, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fixes.plain_positions import PlainPositions, answer
from gateway.formats import Context, positions
from gateway.http.ingest.app_responses import Receiving
from gateway.http.ingest.app_responses import positions as positions_answer
from waylog.messages import decode_fix, encode

RECEIVED = 1_795_000_000_000
ULID = "01JF8ZQ4T0Q2W3E4R5T6Y7U8I9"
POSITION: dict[str, Any] = {"lat": 50.7, "lon": 7.1, "time": RECEIVED - 5, "accuracy": 4.5}


def assert_same(body: bytes, device: str | None = None) -> bool:
    """Compare both parsers; return whether the fast one parsed the body."""
    records = PlainPositions("ada", device).records(body, RECEIVED)
    if records is None:
        return False
    context = Context("ada", device, RECEIVED)
    parsed = positions.parse(body, context)
    assert not parsed.rejected
    assert [decode_fix(value) for _, _, value, _ in records] == [
        decode_fix(encode(fix)) for fix in parsed.fixes
    ]
    assert [key for _, key, _, _ in records] == [fix.device.encode() for fix in parsed.fixes]
    # `positions_answer` uses only what was parsed.
    received = Receiving(parsed, None, None, None)  # type: ignore[arg-type]
    expected = b"".join(positions_answer(received))
    assert json.loads(answer(records)) == json.loads(expected)
    return True


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("device", [None, "watch"])
def test_what_clients_send_takes_the_short_way(
    separators: tuple[str, str], device: str | None
) -> None:
    batch = [
        POSITION,
        POSITION | {"device": "phone"},
        POSITION | {"device": "bike", "id": ULID},
        POSITION | {"device": "phone", "lat": -1, "speed": 1, "charging": True},
    ]
    for body in (*batch, batch):
        assert assert_same(json.dumps(body, separators=separators).encode(), device)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"lat":1,"lon":2}',
        json.dumps([POSITION, POSITION | {"lat": 91}]).encode(),
        json.dumps(POSITION | {"id": "short"}).encode(),
        json.dumps(POSITION | {"device": "bob/phone"}).encode(),
        json.dumps(POSITION | {"device": ""}).encode(),
        json.dumps(POSITION | {"device": 7}).encode(),
        json.dumps(POSITION | {"device": "büro"}).encode(),
        json.dumps(POSITION | {"attributes": {"device": "x"}}).encode(),
        json.dumps(POSITION)[:-1].encode() + b',"device":"a","device":"b"}',
        json.dumps(POSITION)[:-1].encode() + b',"device":"a',
        json.dumps(POSITION).encode() + b"\n" + json.dumps(POSITION).encode(),
    ],
)
def test_what_is_unusual_is_left_to_the_long_way(body: bytes) -> None:
    assert not assert_same(body)


values = (
    st.none()
    | st.booleans()
    | st.integers(-400, 400)
    | st.floats(-400, 400).map(lambda value: round(value, 5))
    | st.text(max_size=20)
    | st.sampled_from(["phone", ULID, "a/b", '"device":"x"', "wl_" + "a" * 43])
)
names = st.sampled_from(
    ["lat", "lon", "time", "device", "id", "accuracy", "speed", "trigger", "battery", "x"]
)
items = st.dictionaries(names, values, max_size=4).map(lambda item: POSITION | item)


@given(
    body=st.lists(items, min_size=1, max_size=3) | items,
    ascii_only=st.booleans(),
    device=st.sampled_from([None, "watch"]),
)
@settings(max_examples=500)
def test_both_ways_agree(body: Any, ascii_only: bool, device: str | None) -> None:
    assert_same(json.dumps(body, ensure_ascii=ascii_only).encode(), device)


@given(body=st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: b'{"device":' + tail))
@settings(max_examples=300)
def test_any_bytes(body: bytes) -> None:
    assert_same(body)
