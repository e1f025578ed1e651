"""Waylog's own JSON format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.formats import Context, positions
from waylog.messages import decode_fix, fix_id
from waylog.messages import encode as waylog_encode

RECEIVED = 1_761_994_812_000
CONTEXT = Context("ada", None, RECEIVED)

FULL: dict[str, Any] = {
    "id": "01JBKM3T5W9Q2X4Y6Z8A0B1C2D",
    "device": "ada/phone",
    "lat": 47.141,
    "lon": 9.5209,
    "time": 1_761_994_805_120,
    "accuracy": 5,
    "altitude": 455.5,
    "vertical_accuracy": 3,
    "speed": 1.5,
    "course": 90,
    "battery": 80,
    "charging": True,
    "trigger": "timer",
    "attributes": {"steps": 12},
}


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_all_members_of_a_fix_are_read() -> None:
    (fix,) = positions.parse(encode(FULL), CONTEXT).fixes
    for name, value in FULL.items():
        assert getattr(fix, name) == value
    assert (fix.user, fix.received, fix.source) == ("ada", RECEIVED, "positions")


@pytest.mark.parametrize("named", ["ada/phone", "watch", "bob/phone", 7, {"a": 1}])
def test_a_device_named_beside_the_token_of_another_is_not_kept(named: object) -> None:
    body = {"lat": 1, "lon": 2, "time": 1_761_994_805_120, "device": named}
    (fix,) = positions.parse(encode(body), Context("ada", "phone", RECEIVED)).fixes
    assert (fix.device, fix.attributes) == ("ada/phone", None)


def test_short_names_are_read_too() -> None:
    body = {"t": 1_761_994_805_120, "lat": 1, "lng": 2, "acc": 3, "alt": 4, "vel": 5, "batt": 6}
    (fix,) = positions.parse(encode(body), CONTEXT).fixes
    assert (fix.time, fix.lat, fix.lon, fix.accuracy, fix.altitude, fix.speed, fix.battery) == (
        *(1_761_994_805_120, 1, 2, 3, 4, 5, 6),
    )


@pytest.mark.parametrize(
    "time",
    [
        *(1761994805, 1761994805000, 1761994805.0, "1761994805", "1761994805000"),
        *("2025-11-01T11:00:05Z", "2025-11-01T12:00:05+01:00", "2025-11-01 11:00:05"),
    ],
)
def test_times_in_seconds_milliseconds_and_iso_8601_are_the_same(time: object) -> None:
    (fix,) = positions.parse(encode({"lat": 1, "lon": 2, "time": time}), CONTEXT).fixes
    assert fix.time == 1761994805000


def test_a_long_id_is_kept_and_a_short_one_made_unique() -> None:
    short = {"lat": 1, "lon": 2, "time": RECEIVED, "id": "7", "device": "phone"}
    parsed = positions.parse(encode([FULL, short, {"lat": 1, "lon": 2}]), CONTEXT)
    assert parsed.fixes[0].id == FULL["id"]
    assert parsed.fixes[1].id == fix_id("ada/phone", RECEIVED, 1.0, 2.0, message_id="7")
    assert parsed.client_ids == [FULL["id"], "7", None]


def test_client_ids_stay_beside_their_fixes_when_the_first_have_none() -> None:
    parsed = positions.parse(encode([{"lat": 1, "lon": 2}, {"lat": 95}, FULL]), CONTEXT)
    assert parsed.client_ids == [None, FULL["id"]]
    assert parsed.rejected_at == [1]


def test_a_repeat_without_a_time_has_the_same_id_if_the_client_gave_one() -> None:
    body = encode({"id": "mine", "lat": 1, "lon": 2})
    first = positions.parse(body, CONTEXT).fixes[0]
    later = positions.parse(body, Context("ada", None, RECEIVED + 60_000)).fixes[0]
    assert first.id == later.id
    assert (first.time, later.time) == (RECEIVED, RECEIVED + 60_000)


@pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\n\n"])
def test_ndjson_is_a_position_a_line(separator: bytes) -> None:
    body = separator.join(encode({"lat": n, "lon": n}) for n in range(5)) + separator
    assert [fix.lat for fix in positions.parse(body, CONTEXT).fixes] == [0, 1, 2, 3, 4]


def test_an_object_over_several_lines_is_one_position() -> None:
    parsed = positions.parse(json.dumps(FULL, indent=2).encode(), CONTEXT)
    assert len(parsed.fixes) == 1


def test_each_bad_item_is_rejected_alone_with_its_place() -> None:
    batch = [{"lat": 1, "lon": 2}, {"lat": "x", "lon": 2}, 5, {"lat": 3, "lon": 4}, {"lat": 1}]
    parsed = positions.parse(encode(batch), CONTEXT)
    assert [fix.lat for fix in parsed.fixes] == [1, 3]
    assert parsed.rejected_at == [1, 2, 4]
    assert [json.loads(rejected.raw) for rejected in parsed.rejected] == [
        *({"lat": "x", "lon": 2}, 5, {"lat": 1})
    ]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"lat": 1, "lon": 2, "device": "eve/phone"}, "another user"),
        ({"lat": 1, "lon": 2, "time": "noon"}, "time"),
        ({"lat": 1, "lon": 2, "time": 10**18}, "time"),
        ({"lat": 1, "lon": 2, "id": "x" * 65}, "id"),
        ({"lat": 1, "lon": 2, "device": "x" * 200}, "name"),
        ({"lat": 1, "lon": 2, "attributes": 5}, "attributes"),
        ({"lat": True, "lon": 2}, "coordinates"),
    ],
)
def test_refusals_say_what_is_wrong(item: dict[str, Any], reason: str) -> None:
    parsed = positions.parse(encode(item), CONTEXT)
    assert not parsed.fixes
    assert reason in parsed.rejected[0].reason


def test_admins_and_open_mode_may_name_devices_of_other_users() -> None:
    context = Context("root", None, RECEIVED, any_user=True)
    (fix,) = positions.parse(encode({"lat": 1, "lon": 2, "device": "eve/phone"}), context).fixes
    assert (fix.user, fix.device) == ("eve", "eve/phone")


def test_the_topic_or_token_decides_over_the_body() -> None:
    context = Context("ada", "watch", RECEIVED)
    (fix,) = positions.parse(encode(FULL), context).fixes
    assert fix.device == "ada/watch"


def test_names_of_devices_are_safe_in_topics_and_urls() -> None:
    body = encode({"lat": 1, "lon": 2, "device": "my phone+#\x01"})
    (fix,) = positions.parse(body, CONTEXT).fixes
    assert fix.device == "ada/my_phone___"


def test_sentinels_and_nonsense_beside_good_coordinates_become_none() -> None:
    body = {"lat": 1, "lon": 2, "speed": -1, "course": 400, "accuracy": "?", "battery": 140}
    (fix,) = positions.parse(encode(body), CONTEXT).fixes
    assert (fix.speed, fix.course, fix.accuracy, fix.battery) == (None,) * 4


def test_more_than_ten_thousand_items_are_refused_whole() -> None:
    parsed = positions.parse(b"[" + b"1," * 10_000 + b"1]", CONTEXT)
    assert parsed.refused is not None
    assert not parsed.rejected


def test_tokens_do_not_reach_the_error_topic() -> None:
    token = "wl_" + "A" * 43
    parsed = positions.parse(encode({"lat": 1, "lon": 2, "device": token}), CONTEXT)
    assert token.encode() not in parsed.rejected[0].raw
    assert token not in parsed.rejected[0].reason


members = st.fixed_dictionaries(
    {
        "lat": st.floats(-95, 95) | st.integers(-90, 90),
        "lon": st.floats(-185, 185),
        "time": st.sampled_from([5, 1_761_994_805, 1_761_994_805_120, RECEIVED + 10**8, 10**20]),
    },
    optional={
        "id": st.text(max_size=70),
        "device": st.sampled_from(["phone", "a b", "ada/x", "eve/x", "", " x "]),
        "accuracy": st.floats(-2, 50) | st.none(),
        "speed": st.floats(-2, 50),
        "course": st.floats(-2, 400),
        "altitude": st.floats(-500, 9000),
        "battery": st.floats(-2, 120) | st.integers(0, 100),
        "vertical_accuracy": st.floats(-2, 50),
        "charging": st.booleans() | st.none(),
        "trigger": st.text(max_size=70),
        "batt": st.integers(0, 100),
    },
)


@settings(max_examples=300)
@given(member=members)
def test_whatever_a_position_says_it_is_one_fix_or_one_refusal(member: dict[str, Any]) -> None:
    parsed = positions.parse(encode(member), CONTEXT)
    assert len(parsed.fixes) + len(parsed.rejected) == 1
    for fix in parsed.fixes:
        assert decode_fix(waylog_encode(fix)) == fix
