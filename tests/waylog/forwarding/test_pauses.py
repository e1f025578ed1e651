"""What pauses of administrators name and cover."""

from __future__ import annotations

import pytest

from waylog.forwarding.definition import WEBHOOK, Forwarding, encode, record_key
from waylog.forwarding.pauses import (
    KnownPauses,
    Pause,
    decode_pause,
    host_of,
    new_pause,
    parse_pause_key,
    pause_key,
)

ID = "0123456789abcdef"
OTHER_ID = "f" * 16


def to(url: str) -> Forwarding:
    return Forwarding(name="x", kind=WEBHOOK, url=url, created=0, since=0)


def pause(**named: str) -> Pause:
    return new_pause("why", "admin", 5, **named)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.ORG./x", "example.org"),
        ("mqtts://example.org:8883/x", "example.org"),
        ("http://[2001:DB8:0::1]:80/", "2001:db8::1"),
        ("http://192.168.1.5/", "192.168.1.5"),
    ],
)
def test_a_server_is_named_in_one_way(url: str, host: str) -> None:
    assert host_of(url) == host
    assert pause(host=host.upper()).covers("anna", ID, to(url))
    assert not pause(host="elsewhere.example.org").covers("anna", ID, to(url))


@pytest.mark.parametrize(
    ("named", "covered"),
    [
        ({"user": "anna"}, [("anna", ID, "a"), ("anna", OTHER_ID, "b")]),
        ({"host": "a"}, [("anna", ID, "a"), ("bert", ID, "a")]),
        ({"user": "anna", "host": "a"}, [("anna", ID, "a")]),
        ({"user": "anna", "forwarding": ID}, [("anna", ID, "a")]),
    ],
)
def test_it_covers_what_fits_all_that_it_names(
    named: dict[str, str], covered: list[tuple[str, str, str]]
) -> None:
    forwardings = [("anna", ID, "a"), ("anna", OTHER_ID, "b"), ("bert", ID, "a"), ("bert", ID, "b")]
    pauses, of_them = KnownPauses(), pause(**named)
    pauses.put("1", of_them)
    for user, each, host in forwardings:
        asked = (user, each, to(f"http://{host}/"))
        assert of_them.covers(*asked) == ((user, each, host) in covered)
        assert pauses.of(*asked) == (of_them if (user, each, host) in covered else None)


def test_the_first_of_several_counts_until_it_ends() -> None:
    pauses, anna = KnownPauses(), ("anna", ID, to("http://a/"))
    first, second = pause(host="a"), new_pause("later", "admin", 6, user="anna")
    assert pauses.put("1", second) is None
    assert pauses.put("2", first) is None
    assert pauses.of(*anna) == first
    assert pauses.put("2", None) == first
    assert pauses.put("2", None) is None
    assert pauses.of(*anna) == second
    # It is put again, with another server.
    assert pauses.put("1", pause(host="b")) == second
    assert pauses.of(*anna) is None
    assert dict(pauses.items()) == {"1": pause(host="b")}


def test_its_key_is_none_of_a_forwarding() -> None:
    assert parse_pause_key(pause_key(ID, "anna")) == ID
    assert parse_pause_key(pause_key(ID, None)) == ID
    others = (record_key("anna", ID), record_key("anna", ID, 7), b"", b"\xff\n\n", b"a\npause\nx")
    assert [parse_pause_key(each) for each in others] == [None] * 5


def test_it_is_read_as_it_was_written() -> None:
    written = pause(user="anna", forwarding=ID)
    assert decode_pause(encode(written)) == written
    assert str(written) == f"forwarding {ID} of anna"
    assert str(pause(host="a")) == "all forwardings to a"
