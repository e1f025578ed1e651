"""Records out of answers, and what the properties make of URLs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.configuration.exceptions import ConfigException
from consumers.connect.data.exceptions import DataException
from consumers.connect.http_source.answer_records import AnswerRecords
from consumers.connect.http_source.json_pointer import MISSING, JsonPointer
from consumers.connect.http_source.properties import Settings, validated

USUAL = {"http.url": "https://example.org/list?since=${offset}", "kafka.topic": "t"}
#: A document of RFC 6901, section 5, and what its pointers name.
RFC = {
    **{"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5},
    **{'k"l': 6, " ": 7, "m~n": 8},
}
POINTERS = {
    **{"": RFC, "/foo": ["bar", "baz"], "/foo/0": "bar", "/": 0, "/a~1b": 1, "/c%d": 2},
    **{"/e^f": 3, "/g|h": 4, "/i\\j": 5, '/k"l': 6, "/ ": 7, "/m~0n": 8},
    **{"/foo/2": MISSING, "/foo/00": MISSING, "/foo/-": MISSING, "/no": MISSING, "//x": MISSING},
}


def settings(**more: str) -> Settings:
    named = {name.replace("_", "."): text for name, text in more.items()}
    return Settings.of(USUAL | {"offset.pointer": "/n"} | named)


@pytest.mark.parametrize("text", POINTERS)
def test_pointers_name_what_the_rfc_says(text: str) -> None:
    assert JsonPointer(text).find(RFC) == POINTERS[text]


@pytest.mark.parametrize("text", ["foo", "/~", "/~2"])
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON pointer"):
        JsonPointer(text)


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.data())
def test_each_member_has_a_pointer(document: dict[str, int], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(document)))
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    assert JsonPointer(pointer).find(document) == document[name]


def read(records: AnswerRecords, document: Any, offset: Any = None) -> tuple[list[str], Any]:
    found, newest = records.read(json.dumps(document).encode(), offset)
    return [each.value for each in found], newest


def test_what_the_last_answer_had_does_not_come_again() -> None:
    records = AnswerRecords(settings())
    assert read(records, [{"n": 1}, {"n": 2}, {"n": 2}]) == (['{"n":1}', '{"n":2}'], 2)
    assert read(records, [{"n": 2}, {"n": 3}], 2) == (['{"n":3}'], 3)
    assert read(records, [{"n": 3}], 3) == ([], 3)
    assert read(records, [], 3) == ([], 3)


@pytest.mark.parametrize(
    ("values", "newest"),
    [
        ([3, 1, 2], 3),
        (["2026-01-02", "2026-01-03", "2026-01-01"], "2026-01-03"),
        ([1, None, True, [], {}], 1),
        ([1, "2"], "2"),
        ([1.5, 1], 1.5),
    ],
)
def test_the_newest_offset_is_found(values: list[Any], newest: Any) -> None:
    assert read(AnswerRecords(settings()), [{"n": each} for each in values])[1] == newest


def test_records_and_keys_are_where_the_pointers_say() -> None:
    records = AnswerRecords(settings(records_pointer="/data/list", key_pointer="/who"))
    body = json.dumps({"data": {"list": [{"who": "ann"}, {"who": 7}, {}, 5]}}).encode()
    found, _ = records.read(body, None)
    assert [each.key for each in found] == ["ann", "7", None, None]
    one = AnswerRecords(settings(records_pointer="/data"))
    assert read(one, {"data": {"n": 4}}) == (['{"n":4}'], 4)
    assert read(one, {"data": None}) == ([], None)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"data": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_answer_is_an_error(body: bytes) -> None:
    records = AnswerRecords(settings(records_pointer="/list"))
    with pytest.raises(DataException):
        records.read(body, None)


def test_positions_of_traccar_become_those_of_the_platform() -> None:
    position = {
        **{"id": 9, "deviceId": 4, "fixTime": "2026-01-02T03:04:05.000+00:00", "valid": True},
        **{"latitude": 47.1, "longitude": 9.5, "altitude": 450.0, "speed": 10.0, "course": 90.0},
        **{"accuracy": 0.0, "attributes": {"batteryLevel": 55.0, "charge": True}},
    }
    records = AnswerRecords(Settings.of(USUAL | {"template": "traccar"}))
    found, offset = records.read(json.dumps([position, {"id": 10}]).encode(), None)
    assert offset == "2026-01-02T03:04:05.000+00:00"
    assert [each.key for each in found] == ["4"]
    assert json.loads(found[0].value) == {
        **{"id": "traccar-4-9-1767323045000", "device": "4", "lat": 47.1, "lon": 9.5},
        **{"time": 1767323045000, "altitude": 450.0, "speed": 5.144, "course": 90.0},
        **{"battery": 55.0, "charging": True},
    }


def test_points_of_dawarich_become_those_of_the_platform() -> None:
    point = {
        **{"id": 9, "latitude": "47.1", "longitude": "9.5", "timestamp": 1767323045},
        **{"velocity": "1.5", "battery": 55, "tracker_id": "phone", "altitude": 450},
    }
    records = AnswerRecords(Settings.of(USUAL | {"template": "dawarich"}))
    found, offset = records.read(json.dumps([point]).encode(), None)
    assert offset == 1767323045
    assert json.loads(found[0].value) == {
        **{"id": "dawarich-phone-9-1767323045000", "device": "phone", "lat": 47.1, "lon": 9.5},
        **{"time": 1767323045000, "altitude": 450, "speed": 1.5, "battery": 55},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "latitude", "longitude", "fixTime", "timestamp", "attributes"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("template", ["traccar", "dawarich"])
@given(document=JSON)
def test_no_answer_ends_a_task(template: str, document: Any) -> None:
    records = AnswerRecords(Settings.of(USUAL | {"template": template}))
    try:
        found, _ = records.read(json.dumps(document).encode(), None)
    except DataException:
        return
    assert all({"lat", "lon", "time"} <= json.loads(each.value).keys() for each in found)


def test_the_offset_is_in_the_query() -> None:
    url = "https://example.org/p?from=${offset.time}&n=${offset}&to=9"
    made = settings(http_url=url)
    assert made.url_at(None) == "https://example.org/p?from=1970-01-01T00%3A00%3A00Z&n=0&to=9"
    assert made.url_at(1767323045) == (
        "https://example.org/p?from=2026-01-02T03%3A04%3A05Z&n=1767323045&to=9"
    )
    assert made.url_at("a&b=c") == "https://example.org/p?from=a%26b%3Dc&n=a%26b%3Dc&to=9"


@pytest.mark.parametrize(
    "wrong",
    [
        {"http.url": "ftp://example.org"},
        {"http.url": "https://u:secret@example.org"},
        {"http.url": "https://${offset}.example.org/"},
        {"http.url": "https://example.org/${offset}"},
        {"http.url": "https://example.org/?a=${other}"},
        {"http.url": "https://example.org/?a=${offset}", "offset.pointer": None},
        {"records.pointer": "data"},
        {"template": "other"},
        {"poll.interval.ms": "0"},
        {"authorization.type": "bearer"},
        {"authorization.type": "basic"},
        {"headers.Host": "x"},
        {"kafka.topic": ""},
    ],
    ids=str,
)
def test_wrong_properties_are_refused(wrong: dict[str, str | None]) -> None:
    named = USUAL | {"offset.pointer": "/n"} | wrong
    properties = {name: text for name, text in named.items() if text is not None}
    with pytest.raises(ConfigException) as error:
        Settings.of(properties)
    assert "secret" not in str(error.value)
    told = [text for each in validated(properties).values() for text in each.errors]
    assert told
