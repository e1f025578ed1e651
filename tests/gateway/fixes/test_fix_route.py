"""The fast parser makes the same fix of each payload as the complete one, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fixes.fix_route import FORM_OWNTRACKS, FORM_POSITION, is_plain
from gateway.fixes.known_fixes import fix_key
from gateway.formats import Context, owntracks, positions
from gateway.mqtt.publishing.topic_route import TopicRoute
from waylog.messages import Fix, decode_fix, fix_id

RECEIVED = 1_761_994_805_123
TIME_S = RECEIVED // 1000 - 7

POSITION = TopicRoute(
    "devices/ada/phone/position", True, positions.parse, "ada/phone", FORM_POSITION
)
OWNTRACKS = TopicRoute("owntracks/ada/phone", True, owntracks.parse, "ada/phone", FORM_OWNTRACKS)


def short(route: TopicRoute, payload: bytes) -> Fix | None:
    made = route.record_of(payload, RECEIVED)
    if made is None:
        return None
    record, key = made
    fix = decode_fix(record)
    assert key == fix_key(fix.device, fix.id)
    return fix


def long(route: TopicRoute, payload: bytes) -> Any:
    """Return what the complete parsers make of a payload: a fix if it is a single one."""
    context = Context(user="ada", device="phone", received=RECEIVED, topic=route.topic)
    assert route.parse is not None
    parsed = route.parse(payload, context)
    alone = len(parsed.fixes) == 1 and not (parsed.events or parsed.rejected)
    return parsed.fixes[0] if alone else parsed


def assert_same(route: TopicRoute, payload: bytes) -> None:
    fix = short(route, payload)
    if fix is not None:
        expected = long(route, payload)
        assert fix == expected
        assert isinstance(expected, Fix)
        # -0.0 == 0.0, but their texts, which ids are made of, differ.
        assert repr(fix) == repr(expected)


ORDINARY_POSITION = {
    "id": "01JB2X9S8V0000000000000000",
    "lat": 50.7332199,
    "lon": -7.0985,
    "time": RECEIVED - 100,
    "accuracy": 4.5,
    "altitude": -61.2,
    "vertical_accuracy": 3,
    "speed": 1.25,
    "course": 359.9,
    "battery": 87,
    "charging": True,
    "trigger": "ping",
}
ORDINARY_OWNTRACKS = {
    "_type": "location",
    "BSSID": "aa:bb:cc:dd:ee:ff",
    "SSID": "Home Net",
    "_id": "1f4d9c3a",
    "acc": 13,
    "alt": 61,
    "batt": 87,
    "bs": 2,
    "cog": 270,
    "conn": "w",
    "created_at": TIME_S + 1,
    "inregions": ["Home", "Bonn"],
    "inrids": [],
    "lat": 50.73322,
    "lon": 7.0985001,
    "m": 1,
    "p": 100.325,
    "t": "u",
    "tid": "ph",
    "topic": "owntracks/ada/phone",
    "tst": TIME_S,
    "vac": 3,
    "vel": 37,
    "poi": None,
    "tag": "",
    "source": "fused",
}


@pytest.mark.parametrize(
    ("route", "message"), [(POSITION, ORDINARY_POSITION), (OWNTRACKS, ORDINARY_OWNTRACKS)]
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", " : ")])
def test_what_apps_send_takes_the_short_way(
    route: TopicRoute, message: dict[str, Any], separators: tuple[str, str]
) -> None:
    for left_out in [None, *message]:
        members = {name: value for name, value in message.items() if name != left_out}
        payload = json.dumps(members, separators=separators).encode()
        assert_same(route, payload)
        needed = {"lat", "lon", "time" if route is POSITION else "tst", "_type"}
        assert (short(route, payload) is None) == (left_out in needed)


@pytest.mark.parametrize("member", ["note", "inregions"])
def test_a_token_in_an_attribute_is_in_no_record(member: str) -> None:
    text = "see wl_" + "q" * 43
    message = ORDINARY_OWNTRACKS | {member: [text] if member == "inregions" else text}
    payload = json.dumps(message).encode()
    assert short(OWNTRACKS, payload) is None
    assert "wl_" not in str(long(OWNTRACKS, payload).attributes)


@pytest.mark.parametrize("zero", [b"0", b"-0", b"0.0", b"-0.0", b"-0.000"])
@pytest.mark.parametrize("member", ["lat", "lon", "alt"])
def test_a_zero_has_the_same_sign_on_both_ways(zero: bytes, member: str) -> None:
    # "-0" has a sign as a float but none as an integer; found by libFuzzer.
    for route, name, ordinary in (
        (POSITION, "altitude" if member == "alt" else member, ORDINARY_POSITION),
        (OWNTRACKS, member, ORDINARY_OWNTRACKS),
    ):
        for left_out in ({"id", "_id"}, set[str]()):
            members = {key: value for key, value in ordinary.items() if key not in left_out}
            payload = json.dumps(members | {name: 4711}).encode().replace(b"4711", zero)
            assert_same(route, payload)


NUMBERS = st.one_of(
    st.integers(-400, 400),
    st.floats(-400, 400).map(lambda value: round(value, 5)),
    st.floats(-400, 400),
    st.integers(0, 2**64),
    st.sampled_from([-1, 0, -0.0, 360, 100, 1e300, 17.0, TIME_S, RECEIVED, 10**10]),
)
VALUES = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.text(max_size=20),
    st.text("abcXYZ019 -", max_size=70),
    st.lists(st.one_of(NUMBERS, st.text("ab c\"'\\", max_size=5)), max_size=3),
    st.dictionaries(st.text(max_size=3), NUMBERS, max_size=2),
)
OTHER_NAMES = st.one_of(st.text(max_size=8), st.sampled_from(["device", "topic", "desc", "rid"]))


@given(st.data(), st.sampled_from([POSITION, OWNTRACKS]))
def test_whatever_takes_the_short_way_is_the_same_fix(data: st.DataObject, route: Any) -> None:
    ordinary = ORDINARY_POSITION if route is POSITION else ORDINARY_OWNTRACKS
    members = dict(ordinary)
    names = st.one_of(st.sampled_from(sorted(ordinary)), OTHER_NAMES)
    members.update(data.draw(st.dictionaries(names, VALUES, max_size=3)))
    for name in data.draw(st.lists(st.sampled_from(sorted(members)), max_size=3)):
        members.pop(name, None)
    ascii_only = data.draw(st.booleans())
    assert_same(
        route, json.dumps(members, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    )


@pytest.mark.parametrize(
    "members",
    [
        '"inregions":["Home"],"inregions":null',
        '"inregions":null,"inregions":["Home"]',
        '"tag":"","tag":"bus","tag":"train"',
        '"tag":"","tid":"ph","tag":0',
        '"tag":null,"tid":"ph","tag":null,"poi":"","SSID":""',
        '"tag":"","poi":null',
        '"tag":"","ta":"bus","tags":"train"',
        '"cog":-0.0',
        '"acc":-0.0,"vac":-0.0',
        '"acc":13,"acc":14',
        '"t":"u","t":"p"',
        '"vel":1,"vel":2',
        '"tst":0',
        '"tst":99999999999999999',
    ],
)
def test_what_stands_twice_or_has_an_unusual_zero_is_the_same_on_both_ways(members: str) -> None:
    payload = f'{{"_type":"location","lat":1.5,"lon":2.5,"tst":{TIME_S},{members}}}'
    assert_same(OWNTRACKS, payload.encode())


@given(st.data(), st.sampled_from([POSITION, OWNTRACKS]))
def test_members_that_stand_twice_are_the_same_on_both_ways(
    data: st.DataObject, route: Any
) -> None:
    ordinary = ORDINARY_POSITION if route is POSITION else ORDINARY_OWNTRACKS
    names = st.sampled_from(sorted(ordinary))
    again = st.one_of(VALUES, st.just(""), names.map(ordinary.__getitem__))
    members = data.draw(st.permutations(sorted(ordinary.items())))
    members += data.draw(st.lists(st.tuples(names, again), min_size=1, max_size=3))
    text = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members)
    assert_same(route, f"{{{text}}}".encode())


@given(st.data(), st.sampled_from([POSITION, OWNTRACKS]))
def test_broken_json_is_never_taken_for_a_fix(data: st.DataObject, route: Any) -> None:
    ordinary = ORDINARY_POSITION if route is POSITION else ORDINARY_OWNTRACKS
    payload = bytearray(json.dumps(ordinary).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload)))
        end = data.draw(st.integers(at, min(len(payload), at + 6)))
        patch = data.draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from([b'"', b",", b"}", b"e9", b".5", b"00", b"-", b"\0", b'"lat":1,']),
            )
        )
        payload[at:end] = patch
    assert_same(route, bytes(payload))


@given(st.integers(-(10**16), 10**16), st.integers(0, 17))
def test_a_number_is_the_nearest_double(digits: int, decimals: int) -> None:
    text = f"{digits:d}" if not decimals else f"{digits / 10**decimals:.{decimals}f}"
    payload = b'{"lat":%b,"lon":7,"time":%d}' % (text.encode(), RECEIVED)
    assert_same(POSITION, payload)


def test_a_device_with_an_unusual_name_takes_the_long_way() -> None:
    for name in ("ada/mein Handy", "ada/wl_x", "ada/", "/x", "ada/ü", 'ada/"', "ada/a/b"):
        assert not is_plain(name)
        route = TopicRoute("t", True, positions.parse, name, FORM_POSITION)
        assert route.record_of(json.dumps(ORDINARY_POSITION).encode(), RECEIVED) is None


def test_what_is_not_allowed_takes_the_long_way() -> None:
    route = TopicRoute("t", False, positions.parse, "ada/phone", FORM_POSITION)
    assert route.record_of(json.dumps(ORDINARY_POSITION).encode(), RECEIVED) is None


@pytest.mark.parametrize(
    "text",
    [
        *("47", "47.0", "47.10", "-0", "-0.0", "0.00001", "0.0001", "1.5000000", "-8.123456789012"),
        *("47.1410000000000", "89.99999999999999", "0.1000", "-90", "12.34567890123456789"),
    ],
)
def test_an_id_is_that_of_the_number_however_it_is_written(text: str) -> None:
    body = b'{"lat":%b,"lon":7.10,"time":1761994805000}' % text.encode()
    expected = fix_id("ada/phone", 1_761_994_805_000, float(text), 7.1)
    made = POSITION.record_of(body, 1_761_994_806_000)
    if made is not None:
        assert decode_fix(made[0]).id == expected
    else:
        assert len(text) > 17 or text == "-0"


@pytest.mark.parametrize("size", [1, 60, 100, 120, 127, 128, 129, 200, 250])
def test_ids_of_devices_with_long_names_are_those_of_everybody(size: int) -> None:
    # The seed of an id is hashed in blocks of 128 bytes.
    device = "ada/" + "d" * (size - 4 if size > 4 else 1)
    route = TopicRoute("devices/ada/d/position", True, positions.parse, device, FORM_POSITION)
    payload = json.dumps({"lat": 50.5, "lon": -7.25, "time": RECEIVED}).encode()
    made = route.record_of(payload, RECEIVED)
    assert made is not None
    assert decode_fix(made[0]).id == fix_id(device, RECEIVED, 50.5, -7.25)
