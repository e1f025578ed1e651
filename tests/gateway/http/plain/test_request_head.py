"""Recognition of plain request heads, and the values read from them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http.plain.request_head import RequestHead, length_span, recognise

HOST = b"\r\nHost: x"
LENGTH = b"\r\nContent-Length: 7"


def plain(head: bytes) -> RequestHead:
    found = recognise(head)
    assert found is not None
    return found


def test_a_post_of_positions_is_plain() -> None:
    head = plain(
        b"POST /v1/positions?d=phone&x=a%20b HTTP/1.1" + HOST + LENGTH +
        b"\r\nAUTHORIZATION: Bearer x\r\nContent-type:application/json\r\nAccept: */*"
        b"\r\nconnection: Keep-Alive\r\ntraceparent: 00-1\r\nX-Limit-D: \t phone "
    )  # fmt: skip
    assert (head.format.name, head.template, head.body_bytes) == (
        *("positions", "/v1/positions", 7),
    )
    assert head.query == {"d": "phone", "x": "a b"}
    assert head.headers == {
        "Host": "x",
        "Authorization": "Bearer x",
        "Content-Type": "application/json",
        "traceparent": "00-1",
        "X-Limit-D": "phone",
    }


@pytest.mark.parametrize(
    ("line", "name", "token", "device"),
    [
        (b"GET /?id=x&lat=1", "osmand", None, None),
        (b"GET /osmand/wl_token?lat=1", "osmand", "wl_token", None),
        (b"GET /in/gpslogger/wl_token?lat=1", "gpslogger", "wl_token", None),
        (b"GET /apps/phonetrack/logGet/tok/bike?lat=1", "phonetrack", "tok", "bike"),
        (b"GET /index.php/apps/phonetrack/log/traccar/tok/bike", "traccar", "tok", "bike"),
        (b"GET /colota", "colota", None, None),
    ],
)
def test_tokens_and_devices_stand_in_paths(
    line: bytes, name: str, token: str | None, device: str | None
) -> None:
    head = plain(line + b" HTTP/1.1" + HOST)
    assert (head.format.name, head.token, head.device, head.body_bytes) == (name, token, device, 0)


POST = b"POST /v1/positions HTTP/1.1"


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1" + HOST,
        b"GET /?page=1 HTTP/1.1" + HOST,
        b"GET /v1/devices HTTP/1.1" + HOST,
        b"GET /v1/positions HTTP/1.1" + HOST,
        b"PUT /v1/positions HTTP/1.1" + HOST + LENGTH,
        b"POST /v1/positions HTTP/1.0" + HOST + LENGTH,
        b"POST http://x/v1/positions HTTP/1.1" + HOST + LENGTH,
        b"POST /osmand/%41 HTTP/1.1" + HOST + LENGTH,
        b"POST /osmand/ HTTP/1.1" + HOST + LENGTH,
        b"POST  /v1/positions HTTP/1.1" + HOST + LENGTH,
        POST + HOST,
        POST + LENGTH,
        POST + HOST + HOST + LENGTH,
        POST + HOST + LENGTH + LENGTH,
        POST + HOST + b"\r\nContent-Length: -1",
        POST + HOST + b"\r\nContent-Length: +7",
        POST + HOST + b"\r\nContent-Length: 7, 7",
        POST + HOST + b"\r\nContent-Length: \xb2",
        POST + HOST + b"\r\nContent-Length: ",
        POST + HOST + b"\r\nContent-Length : 7",
        POST + HOST + LENGTH + b"\r\nTransfer-Encoding: chunked",
        POST + HOST + LENGTH + b"\r\nContent-Encoding: gzip",
        POST + HOST + LENGTH + b"\r\nExpect: 100-continue",
        POST + HOST + LENGTH + b"\r\nUpgrade: websocket",
        POST + HOST + LENGTH + b"\r\nConnection: close",
        POST + HOST + LENGTH + b"\r\nOrigin: http://x",
        POST + HOST + LENGTH + b"\r\nAuthorization: a\r\nAuthorization: b",
        POST + HOST + LENGTH + b"\r\n folded",
        POST + HOST + LENGTH + b"\r\nX: a\nb",
        POST + HOST + LENGTH + b"\r\nX: a\0b",
        POST + HOST + LENGTH + b"\r\nX y: a",
        POST + HOST + LENGTH + b"\r\n: a",
        POST + HOST + LENGTH + b"\r\nX: y" * 100,
        b"",
    ],
)
def test_whatever_is_the_least_unusual_is_not(head: bytes) -> None:
    assert recognise(head) is None


parts = st.sampled_from(
    [
        *(b"POST", b"GET", b" ", b"/", b"/v1/positions", b"/osmand", b"?id=", b"%", b"HTTP/1.1"),
        *(b"\r\n", b"Host: x", b"Content-Length: ", b"7", b":", b"Authorization: Basic x"),
        *(b"\xff", b"\0"),
    ]
)


@given(head=st.lists(parts, max_size=14).map(b"".join) | st.binary(max_size=60))
@settings(max_examples=500)
def test_any_bytes_are_plain_or_not(head: bytes) -> None:
    found = recognise(head)
    assert found is None or found.body_bytes >= 0


KNOWN = b"POST /v1/positions?u=a HTTP/1.1" + HOST + b"\r\nContent-length: 12\r\nAccept: */*"
SPAN = length_span(KNOWN)


@pytest.mark.parametrize("length", [b"0", b"7", b"13", b"1234", b"007", b"999999999"])
def test_a_head_that_differs_in_its_length_alone_is_known(length: bytes) -> None:
    assert SPAN is not None
    head = KNOWN.replace(b"12", length)
    assert SPAN.of_same(KNOWN, head) == int(length)
    assert recognise(head) == plain(KNOWN)._replace(body_bytes=int(length))


@settings(max_examples=300)
@given(
    st.integers(0, len(KNOWN)),
    st.integers(0, 4),
    st.one_of(st.binary(max_size=4), st.sampled_from([b"1", b"\r\n", b" ", b"1" * 12, b"-"])),
)
def test_whatever_is_taken_for_a_known_head_is_recognised_as_it(
    place: int, removed: int, added: bytes
) -> None:
    assert SPAN is not None
    head = KNOWN[:place] + added + KNOWN[place + removed :]
    length = SPAN.of_same(KNOWN, head)
    if length is not None:
        assert recognise(head) == plain(KNOWN)._replace(body_bytes=length)


def test_a_head_without_a_length_has_no_place_for_it() -> None:
    assert length_span(b"GET /colota HTTP/1.1" + HOST) is None
