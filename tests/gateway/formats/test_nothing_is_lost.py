"""Each member of a message is mapped, or becomes an attribute, or docs/formats.md says why not."""

from __future__ import annotations

import ast
import copy
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway import formats
from gateway.formats import Context, Parsed, ulogger
from gateway.formats.by_name import PARSERS
from gateway.http.ingest.paths import PATHS
from waylog.messages import encode

RECEIVED = 1_761_994_812_000
TIME_S = 1_761_994_805
PAGE = Path(__file__).parents[3] / "docs/formats.md"
BARE = "$GPRMC,110005.00,A,5044.0046,N,00705.8866,W,12.4,141.0,011125"

#: A full example of each format: what the app sends, with a value in each member.
EXAMPLES: dict[str, dict[str, Any]] = {
    "owntracks": {
        **{"_type": "location", "_id": "5fd20a91", "tid": "mk", "lat": 50.7, "lon": 7.1},
        **{"acc": 14, "alt": 61, "vac": 3, "vel": 23, "cog": 141, "batt": 72, "bs": 1},
        **{"conn": "m", "m": 1, "t": "p", "tst": TIME_S, "created_at": TIME_S + 6, "p": 101.2},
        **{"inregions": ["Office"], "inrids": ["9c01aa"], "SSID": "x", "BSSID": "y", "rad": 5},
        **{"poi": "Here", "tag": "bus", "motionactivities": ["walking"], "source": "fused"},
        **{"topic": "owntracks/mika/phone", "qos": 1, "retained": True, "modeId": 3},
    },
    "overland": {
        "locations": [
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [7.1, 50.7]},
                "properties": {
                    **{"timestamp": "2025-11-01T12:00:05+01:00", "altitude": 61, "speed": 6},
                    **{"course": 141, "horizontal_accuracy": 14, "vertical_accuracy": 3},
                    **{"speed_accuracy": 0.5, "course_accuracy": 4.0, "motion": ["driving"]},
                    **{"battery_state": "unplugged", "battery_level": 0.72, "wifi": "home"},
                    **{"device_id": "mk", "unique_id": "u-1", "trip_id": "t", "pauses": False},
                    **{"activity": "other", "desired_accuracy": 100, "deferred": 1000},
                    **{"significant_change": "enabled", "locations_in_payload": 1},
                    **{"tracking_mode": 1},
                },
            }
        ],
    },
    "traccar": {
        "location": {
            "timestamp": "2025-11-01T11:00:05.120Z",
            "coords": {
                **{"latitude": 50.7, "longitude": 7.1, "accuracy": 14.1, "speed": 6.4},
                **{"heading": 141.0, "altitude": 61.2, "speed_accuracy": 1.25},
                **{"heading_accuracy": 5.5, "altitude_accuracy": 2.5, "floor": 3},
                **{"ellipsoidal_altitude": 108.3, "age": 12},
            },
            **{"is_moving": True, "odometer": 18240, "event": "motionchange", "uuid": "a-b"},
            **{"battery": {"level": 0.72, "is_charging": False}, "mock": True, "alarm": "sos"},
            **{"activity": {"type": "in_vehicle", "confidence": 87}, "extras": {"a": 1}},
            "_": "&id=54017733&lat=50.7&lon=7.1&timestamp=1761994805&",
        },
        "device_id": "54017733",
    },
    "colota": {
        **{"lat": 50.7, "lon": 7.1, "acc": 14, "alt": 61, "vel": 6.4, "batt": 72, "bs": 1},
        **{"tst": TIME_S, "bear": 141.0, "id": "x", "tid": "mk"},
    },
    "home_assistant": {
        "type": "update_location",
        "data": {
            **{"gps": [50.7, 7.1], "gps_accuracy": 14, "battery": 72, "speed": 6},
            **{"altitude": 61, "course": 141, "vertical_accuracy": 3, "location_name": "home"},
        },
    },
    "positions": {
        **{"id": "01JF8ZQ4T0Q2W3E4R5T6Y7U8I9", "device": "phone", "lat": 50.7, "lon": 7.1},
        **{"time": TIME_S * 1000, "accuracy": 12, "altitude": 61, "vertical_accuracy": 2},
        **{"speed": 1.4, "course": 90, "battery": 80, "charging": True, "trigger": "ping"},
        **{"attributes": {"note": "anything"}, "user": "mika", "received": 5, "source": "x"},
    },
    "phonetrack": {
        "points": [[50.73, 7.09, TIME_S, 61, 14, 72, 9, "me", 6.4, 141]],
    },
}
_GPSLOGGER = {
    **{"lat": 50.7, "lon": 7.1, "timestamp": TIME_S, "time": "2025-11-01T11:00:05Z"},
    **{"timeoffset": "2025-11-01T12:00:05+01:00", "date": "2025-11-01", "starttimestamp": TIME_S},
    **{"acc": 14, "alt": 61, "spd": 6.4, "spd_kph": 23.04, "dir": 141, "batt": 72},
    **{"ischarging": "true", "sat": 9, "hdop": 1, "vdop": 2, "pdop": 3, "prov": "gps"},
    **{"dist": 100, "desc": "hello", "aid": "f00", "ser": "s-1", "profile": "p"},
    **{"filename": "f", "act": "walk"},
}
FORMS: dict[str, dict[str, Any]] = {
    "osmand": {
        **{"id": "x", "deviceid": "y", "lat": 50.7, "lon": 7.1, "location": "50.8,7.2"},
        **{"timestamp": TIME_S, "speed": 12.4, "bearing": 141, "heading": 142, "altitude": 61},
        **{"accuracy": 14, "hdop": 1.5, "batt": 72, "charge": "true", "valid": "true"},
        **{"cell": "1,2,3,4", "wifi": "aa-bb,-50", "driverUniqueId": "0049", "alarm": "sos"},
        **{"event": "e", "notificationToken": "hush", "speed_unit": "ms"},
    },
    "gpslogger": _GPSLOGGER,
    "colota": EXAMPLES["colota"],
    "phonetrack": {
        **{"lat": 50.73, "lon": 7.09, "alt": 61, "timestamp": TIME_S, "acc": 14, "bat": 72},
        **{"sat": 9, "useragent": "me", "speed": 6.4, "bearing": 141, "datetime": "2025"},
    },
    "opengts": {
        **{"id": "x", "dev": "y", "acct": "z", "device": "w", "code": "0xF020", "alt": 61},
        **{"batt": 72, "gprmc": BARE + ",1.5,E,A"},
    },
}

#: Mapped to a member of the fix by a conversion, so that the value itself is not in the fix.
CONVERTED = {
    "owntracks": {"_id", "tst", "vel", "bs", "_type"},
    "overland": {"timestamp", "battery_level", "battery_state", "type"},
    "traccar": {"timestamp", "level"},
    "colota": {"tst", "bs"},
    "home_assistant": {"type"},
    "positions": set[str](),
    "gpslogger": {"timestamp", "ischarging"},
    "osmand": {"timestamp", "speed", "charge", "speed_unit"},
    "opengts": {"gprmc"},
    "phonetrack": {"timestamp"},
}


def context(query: dict[str, str] | None = None, device: str | None = None) -> Context:
    return Context("mika", device, RECEIVED, query=query)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each member that has no members of its own."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each, name)
    else:
        yield name, value


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object in a message, with where it is."""
    if isinstance(value, dict):
        yield path, value
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in children if isinstance(value, dict | list) else ():
        if isinstance(each, dict | list):
            yield from objects(each, f"{path}.{key}")


def named_as_not_kept(format_name: str) -> set[str]:
    """Return the members that docs/formats.md names as not kept, by its table."""
    section = PAGE.read_text(encoding="utf-8").partition("## What is not kept")[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", section.partition("\n## ")[0], re.MULTILINE)
    return {
        member
        for formats, members in rows
        if format_name in formats or "all" in formats
        for member in re.findall(r"`([^`]+)`", members)
    }


def records_of(parsed: Parsed) -> list[bytes]:
    return [*map(encode, parsed.fixes), *map(encode, parsed.events)]


def texts_of(parsed: Parsed) -> set[str]:
    assert parsed.fixes or parsed.events, parsed
    found: set[str] = set()
    for record in records_of(parsed):
        for _, value in leaves(json.loads(record)):
            found |= {str(value), str(value).lower()}
            if isinstance(value, float) and value.is_integer():
                found.add(str(int(value)))
    return found | {each.rpartition("/")[2] for each in found}


@pytest.mark.parametrize("device", [None, "named-elsewhere"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_each_value_of_a_full_example_comes_back(name: str, device: str | None) -> None:
    parsed = PARSERS[name](json.dumps(EXAMPLES[name]).encode(), context(device=device))
    kept = texts_of(parsed)
    allowed = CONVERTED[name] | named_as_not_kept(name)
    lost = {
        (member, value)
        for member, value in leaves(EXAMPLES[name])
        if str(value) not in kept and str(value).lower() not in kept and member not in allowed
    }
    assert lost - {("points", TIME_S)} == set()


@pytest.mark.parametrize("in_body", [False, True])
@pytest.mark.parametrize("device", [None, "named-elsewhere"])
@pytest.mark.parametrize("name", FORMS)
def test_each_parameter_of_a_full_example_comes_back(
    name: str, device: str | None, in_body: bool
) -> None:
    values = {member: str(value) for member, value in FORMS[name].items()}
    parsed = (
        PARSERS[name](urlencode(values).encode(), context(device=device))
        if in_body
        else PARSERS[name](b"", context(values, device))
    )
    kept = texts_of(parsed)
    allowed = CONVERTED[name] | named_as_not_kept(name)
    assert {
        (member, value)
        for member, value in values.items()
        if value not in kept and member not in allowed
    } == set()


@pytest.mark.parametrize("extra", ["mark1", 47110815, True, {"deep": ["mark2"]}])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_unknown_member_at_any_level_becomes_an_attribute(name: str, extra: Any) -> None:
    for path, _ in list(objects(EXAMPLES[name])):
        message = copy.deepcopy(EXAMPLES[name])
        dict(objects(message))[path]["brand-new"] = extra
        parsed = PARSERS[name](json.dumps(message).encode(), context())
        (item,) = parsed.fixes
        attributes = item.attributes or {}
        found = [value for key, value in _members(attributes) if key.endswith("brand-new")]
        assert found == [extra], (path, attributes)


#: What the examples leave out, since it makes more than one fix.
_WHOLE: dict[str, dict[str, Any]] = EXAMPLES | {
    "overland": EXAMPLES["overland"]
    | {
        "current": {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [7.2, 50.8]},
            "properties": {"timestamp": "2025-11-01T12:00:09+01:00"},
        },
        "trip": {"mode": "driving", "start": "2025-11-01T11:00:05+01:00"},
    }
}
_NAME = re.compile(r"[A-Za-z_]\w{0,30}")


def names_in(module: str) -> list[str]:
    """Return all texts in the code of a parser that may be names of members."""
    tree = ast.parse((Path(formats.__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return sorted(each for each in texts if isinstance(each, str) and _NAME.fullmatch(each))


@pytest.mark.parametrize("value", ["mark1", {"deep": ["mark1"]}, ["mark1"]])
@pytest.mark.parametrize("name", _WHOLE)
def test_no_member_that_a_parser_names_is_dropped_whatever_it_holds(name: str, value: Any) -> None:
    """It is read, kept as it came, refused with the item, or on the page of what is not kept."""
    hashed = {"id"} if name == "positions" else set[str]()
    lost = []
    for path, _ in list(objects(_WHOLE[name])):
        for member in set(names_in(name)) - hashed - named_as_not_kept(name):
            message = copy.deepcopy(_WHOLE[name])
            dict(objects(message))[path][member] = value
            parsed = PARSERS[name](json.dumps(message).encode(), context())
            raw = [each.raw for each in parsed.rejected]
            if b"mark1" not in b"".join([*records_of(parsed), *raw]):
                lost.append((path, member))
    assert lost == []


_ULOGGER = {
    **{"action": "addpos", "lat": 50.7, "lon": 7.1, "time": TIME_S, "altitude": 61, "speed": 6},
    **{"bearing": 141, "accuracy": 14, "provider": "gps", "comment": "here", "trackid": 5},
}


@pytest.mark.parametrize("in_body", [False, True])
@pytest.mark.parametrize("device", [None, "named-elsewhere"])
@pytest.mark.parametrize("name", [*FORMS, "ulogger", "addtrack"])
def test_no_parameter_that_a_parser_names_is_dropped_whatever_it_holds(
    name: str, device: str | None, in_body: bool
) -> None:
    of_track = {"action": "addtrack", "track": "walk"}
    forms = FORMS | {"ulogger": _ULOGGER, "addtrack": of_track}
    module = "ulogger" if name == "addtrack" else name
    parse = ulogger.parse if module == "ulogger" else PARSERS[module]
    lost = []
    for member in set(names_in(module)) - named_as_not_kept(module):
        values = {each: str(value) for each, value in forms[name].items()} | {member: "mark1"}
        parsed = (
            parse(urlencode(values).encode(), context(device=device))
            if in_body
            else parse(b"", context(values, device))
        )
        raw = [each.raw for each in parsed.rejected]
        if b"mark1" not in b"".join([*records_of(parsed), *raw]):
            lost.append(member)
    assert lost == []


@pytest.mark.parametrize("action", ["visit", "trip"])
def test_where_an_event_was_takes_no_other_members_name(action: str) -> None:
    (feature,) = EXAMPLES["overland"]["locations"]
    event = feature | {"lat": "mark1", "lon": "mark2", "properties": {"action": action}}
    parsed = PARSERS["overland"](json.dumps({"locations": [event]}).encode(), context())
    kept = b"".join(records_of(parsed))
    assert b"mark1" in kept
    assert b"mark2" in kept


@pytest.mark.parametrize("device", [None, "phone"])
@pytest.mark.parametrize("locations", [0, 1])
@pytest.mark.parametrize(
    "beside",
    [
        *({"trip": {"mode": "mark1"}}, {"trip": "mark1"}, {"trip": ["mark1"]}),
        *({"trip": {"deep": [[[[[[[[[["mark1"]]]]]]]]]]}}, {"current": "mark1"}),
        *({"current": {"properties": {"note": "mark1"}}}, {"note": "mark1"}),
    ],
)
def test_what_stands_beside_locations_is_kept_with_and_without_any(
    beside: dict[str, Any], locations: int, device: str | None
) -> None:
    batch = {"locations": EXAMPLES["overland"]["locations"] * locations} | beside
    parsed = PARSERS["overland"](json.dumps(batch).encode(), context(device=device))
    assert len(parsed.fixes) == locations
    assert b"mark1" in b"".join([*records_of(parsed), *(each.raw for each in parsed.rejected)])


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key, each
            yield from _members(each)


@pytest.mark.parametrize("name", FORMS)
def test_an_unknown_parameter_becomes_an_attribute(name: str) -> None:
    for query in (None, {"brand-new": "here"}):
        values = {member: str(value) for member, value in FORMS[name].items()}
        extra = {} if query else {"brand-new": "here"}
        parsed = PARSERS[name](urlencode(values | extra).encode(), context(query))
        assert (parsed.fixes[0].attributes or {})["brand-new"] == "here"


@pytest.mark.parametrize("value", ["fast", [1, 2], 1e39, {"x": 1}])
@pytest.mark.parametrize(
    ("name", "path", "members"),
    [
        ("owntracks", (), ("acc", "alt", "vac", "vel", "cog", "batt", "bs")),
        ("overland", ("locations", 0, "properties"), ("altitude", "speed", "course")),
        ("traccar", ("location", "coords"), ("accuracy", "speed", "heading", "altitude")),
        ("traccar", ("location", "battery"), ("level",)),
        ("colota", (), ("acc", "alt", "vel", "batt", "bear", "bs")),
        ("home_assistant", ("data",), ("gps_accuracy", "battery", "speed", "altitude")),
        ("positions", (), ("accuracy", "altitude", "speed", "course", "battery")),
    ],
)
def test_a_value_that_cannot_be_read_is_kept_as_it_came(
    name: str, path: tuple[Any, ...], members: tuple[str, ...], value: Any
) -> None:
    for member in members:
        message = copy.deepcopy(EXAMPLES[name])
        inner: Any = message
        for key in path:
            inner = inner[key]
        inner[member] = value
        (fix,) = PARSERS[name](json.dumps(message).encode(), context()).fixes
        found = [each for key, each in _members(fix.attributes or {}) if key.endswith(member)]
        assert value in found, (member, fix)


# --- several places -----------------------------------------------------------------------------

_BY_FORM: dict[str, Callable[[int], dict[str, Any]]] = {
    "osmand": lambda lat: {"lat": lat, "lon": 2, "timestamp": TIME_S},
    "gpslogger": lambda lat: {"lat": lat, "lon": 2, "timestamp": TIME_S},
    "colota": lambda lat: {"lat": lat, "lon": 2, "tst": TIME_S},
    "phonetrack": lambda lat: {"lat": lat, "lon": 2, "timestamp": TIME_S},
    "traccar": lambda lat: {"lat": lat, "lon": 2, "timestamp": TIME_S},
    "opengts": lambda lat: {"gprmc": BARE.replace("5044", f"{lat:02}00")},
}
_PLACE = {"lat": "1", "lon": "2", "timestamp": str(TIME_S)}


def _of_url(name: str) -> dict[str, str]:
    return {key: str(value) for key, value in _BY_FORM[name](1).items()}


@pytest.mark.parametrize("json_body", [False, True])
@pytest.mark.parametrize("name", _BY_FORM)
def test_a_fix_in_the_url_and_another_in_the_body_are_two(name: str, json_body: bool) -> None:
    other = _BY_FORM[name](3)
    if name == "traccar" and json_body:
        other = {"location": {"latitude": 3, "longitude": 2, "timestamp": TIME_S}}
    body = (json.dumps(other) if json_body else urlencode(other)).encode()
    parsed = PARSERS[name](body, context(_of_url(name)))
    assert sorted(int(fix.lat) for fix in parsed.fixes) == [1, 3]
    assert not parsed.rejected


@pytest.mark.parametrize("path", sorted(set(PATHS) - {"/v1/positions"}))
@pytest.mark.parametrize("kind", sorted(EXAMPLES.keys() - {"positions", "phonetrack"}))
def test_json_of_any_app_and_a_fix_in_the_url_are_two_on_every_path(path: str, kind: str) -> None:
    device_format = PATHS[path]
    if "POST" not in device_format.methods:
        return
    query = _of_url(device_format.name) if device_format.name == "opengts" else _PLACE
    parsed = device_format.parse(json.dumps(EXAMPLES[kind]).encode(), context(dict(query)))
    places = sorted(int(fix.lat) for fix in parsed.fixes)
    # What the path cannot read of a body is kept, raw, in topic `error`.
    assert places == [1, 50] or (places == [1] and len(parsed.rejected) == 1), parsed


@pytest.mark.parametrize("name", _BY_FORM)
def test_url_and_body_complement_each_other_and_what_differs_is_kept(name: str) -> None:
    url = _of_url(name) | {"only-url": "u", "both": "url"}
    body = {**url, "only-body": "b", "both": "body"}
    for query, form in ((url, body), (url, {"only-body": "b", "both": "body"})):
        (fix,) = PARSERS[name](urlencode(form).encode(), context(dict(query))).fixes
        attributes = fix.attributes or {}
        assert (attributes["only-url"], attributes["only-body"]) == ("u", "b")
        assert attributes["both"] == "url"
        assert attributes["body"] == {"both": "body"}


@pytest.mark.parametrize("name", ["osmand", "gpslogger", "colota", "phonetrack"])
def test_parts_of_a_position_in_url_and_body_are_one(name: str) -> None:
    (fix,) = PARSERS[name](b"lon=2&alt=5", context({"lat": "1"})).fixes
    assert (fix.lat, fix.lon) == (1, 2)


def test_our_own_json_is_not_mixed_with_coordinates_in_the_url() -> None:
    parsed = PARSERS["positions"](b'{"lat":3,"lon":4}', context({"lat": "1", "lon": "2"}))
    assert not parsed.fixes
    assert parsed.malformed == "lat, lon in the URL: send positions in the body"


@pytest.mark.parametrize("name", ["owntracks", "overland", "traccar", "home_assistant"])
def test_parameters_beside_a_json_body_are_kept(name: str) -> None:
    body = json.dumps(EXAMPLES[name]).encode()
    (fix,) = PARSERS[name](body, context({"u": "mika", "battery": "7", "token": "hush"})).fixes
    assert (fix.attributes or {})["query"] == {"battery": "7"}
    (fix,) = PARSERS[name](body, context({"d": "watch", "id": "x"}, "watch")).fixes
    assert (fix.attributes or {})["query"] == {"id": "x"}
    repeated = {"lat": "50.70001", "lon": "7.1"}
    (fix,) = PARSERS[name](body, context(repeated)).fixes
    assert (fix.attributes or {})["query"] == repeated
    rejected = PARSERS[name](b"{broken", context({"battery": "7"})).rejected[-1]
    assert (rejected.headers or {})["query"] == "battery=7"


@pytest.mark.parametrize("name", sorted(PARSERS.keys() - {"owntracks"}))
@pytest.mark.parametrize("query", [None, {}])
def test_a_request_without_values_is_malformed(name: str, query: dict[str, str] | None) -> None:
    parsed = PARSERS[name](b" ", context(query))
    assert parsed.malformed
    assert not parsed.count


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_credentials_and_tokens_are_never_attributes(name: str) -> None:
    token = "wl_" + "q" * 43
    for example, as_form in ((EXAMPLES.get(name), False), (FORMS.get(name), True)):
        if example is None:
            continue
        message = example | {"password": "hush", "token": "hush", "note": f"see {token}"}
        body = urlencode(message) if as_form else json.dumps(message)
        parsed = PARSERS[name](body.encode(), context())
        kept = b"".join(records_of(parsed))
        assert kept
        assert b"hush" not in kept
        assert token.encode() not in kept


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_credentials_beside_others_are_not_kept_either(name: str) -> None:
    """Neither where URL and body differ, nor in the URL of what cannot be read."""
    token = "wl_" + "q" * 43
    hidden = {"pass": "hush1", "key": "hush2", "notificationToken": "hush3", "see": f"at {token}"}
    in_json = name not in FORMS or name == "opengts"
    query = hidden if in_json else {"notificationToken": "hush3", "see": f"at {token}"}
    if name in EXAMPLES and name != "positions":
        parsed = PARSERS[name](json.dumps(EXAMPLES["owntracks"]).encode(), context(dict(query)))
        kept = b"".join(records_of(parsed))
        assert kept
        assert token.encode() not in kept
        if name not in FORMS:
            assert b"hush" not in kept
    rejected = PARSERS[name](b"{broken", context(hidden)).rejected
    kept = b"".join(map(encode, rejected))
    assert kept
    assert token.encode() not in kept
    assert b"hush" not in kept


def test_a_credential_that_url_and_body_give_differently_is_in_no_attribute() -> None:
    form = b"action=addpos&lat=1&lon=2&time=1761994805&user=a&pass=hush1&note=b"
    url = {"user": "b", "pass": "hush2", "note": "u"}
    (fix,) = ulogger.parse(form, context(url)).fixes
    assert fix.attributes == {"note": "u", "body": {"note": "b"}}
    (fix,) = PARSERS["osmand"](
        b"id=x&lat=1&lon=2&notificationToken=hush1", context({"notificationToken": "hush2"})
    ).fixes
    assert fix.attributes is None


# --- many members -------------------------------------------------------------------------------


def test_what_stands_beside_points_is_kept_once_however_many_there_are() -> None:
    rows = [[50.7, 7.1, TIME_S + index] for index in range(1000)]
    body = json.dumps({"points": rows, "note": "x" * 16_000}).encode()
    parsed = PARSERS["phonetrack"](body, context())
    assert len(parsed.fixes) == len(rows)
    assert sum(len(record) for record in records_of(parsed)) < 10 * len(body)
    assert parsed.fixes[-1].attributes == {"note": "x" * 16_000}


def test_names_that_differ_only_in_their_capitals_are_all_kept() -> None:
    names = ["".join(each) for each in itertools.product(*("aA",) * 10)][:500]
    spelled = {f"n{name}": index for index, name in enumerate(names)}
    message = {"LAT": 1, "lat": 50.7, "Lon": 7.1, **dict(itertools.islice(spelled.items(), 50))}
    (fix,) = PARSERS["gpslogger"](json.dumps(message).encode(), context()).fixes
    assert (fix.lat, fix.lon) == (50.7, 7.1)
    attributes = fix.attributes or {}
    assert sorted(attributes.values()) == sorted([1, *range(50)])
    # One name for each, however many of them there are: no longer ones are made up.
    parsed = PARSERS["gpslogger"](json.dumps({"lat": 1, "lon": 2} | spelled).encode(), context())
    attributes = parsed.fixes[0].attributes or {}
    assert {len(name) for name in attributes.keys() - {"omitted"}} == {11}
