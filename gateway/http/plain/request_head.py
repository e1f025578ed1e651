"""Recognises the head of a plain request that sends fixes; sans-IO.

Nearly all requests to a gateway are alike: a POST to a known path with a length and an
Authorization, again and again on one connection. These are parsed here. Anything else (another
path, chunks, compression, an upgrade, unusual white space) yields None and goes to the complete
HTTP server, so strictness here costs nothing.
"""

from __future__ import annotations

import re
import string
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from gateway.http.ingest.paths import AT_ROOT, PATHS, Format
from waylog.network.served_hosts import is_authority

HEAD_BYTES_MAX: Final = 8_000
_HEADERS_MAX: Final = 60
_PARAMETERS_MAX: Final = 100
_LENGTH_DIGITS_MAX: Final = 9

_STARTS: Final = (b"GET /", b"POST /")
_LONGEST_START: Final = b"POST /"
#: What a request may begin with: a token (RFC 9110, section 5.6.2), or empty lines before it.
_BEGINNINGS: Final = frozenset(f"!#$%&'*+-.^_`|~{string.digits}{string.ascii_letters}\r\n".encode())

_REQUEST_LINE = re.compile(
    rb"(GET|POST) (/[A-Za-z0-9._~/-]*)(?:\?([A-Za-z0-9._~!$&'()*+,;=:@/?%-]*))? HTTP/1\.1"
)
# RFC 9110, section 5.5: no white space before the colon, and no line folding.
_HEADER = re.compile(
    rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?[ \t]*"
)

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)", re.IGNORECASE)

#: Headers that are passed on, under the names that the handlers use.
_KEPT: Final = {
    name.lower().encode(): name
    for name in (
        *("Host", "Authorization", "Content-Type", "User-Agent", "X-Limit-U", "X-Limit-D"),
        *("traceparent", "X-Forwarded-For"),
    )
}
#: Headers that make a request not plain.
_UNUSUAL: Final = frozenset(
    (
        *(b"transfer-encoding", b"content-encoding", b"expect", b"upgrade", b"te", b"trailer"),
        *(b"cookie", b"origin", b"forwarded", b"range", b"sec-fetch-mode"),
    )
)


class RequestHead(NamedTuple):
    """The parsed head of a plain request that sends fixes."""

    format: Format
    template: str  # the path as in PATHS
    token: str | None  # of the path
    device: str | None
    query: dict[str, str]
    headers: dict[str, str]
    body_bytes: int


def is_request(data: bytes, position: int) -> bool:
    """Tell whether any request of HTTP/1 may begin here."""
    return data[position] in _BEGINNINGS


def may_be_plain(data: bytes, position: int) -> bool:
    """Tell whether what begins here may become a plain request."""
    start = data[position : position + len(_LONGEST_START)]
    return any(each[: len(start)] == start[: len(each)] for each in _STARTS)


def _templates() -> dict[tuple[str, int], tuple[Format, str]]:
    """Return the paths with parameters, by the part before the parameters and their number."""
    found: dict[tuple[str, int], tuple[Format, str]] = {}
    for path, device_format in PATHS.items():
        before, separator, _ = path.partition("/{")
        if separator:
            found[(before, path.count("{"))] = (device_format, path)
    return found


_LITERAL: Final = {path: (format_, path) for path, format_ in PATHS.items() if "{" not in path}
_TEMPLATES: Final = _templates()


def recognise(head: bytes) -> RequestHead | None:
    """Parse `head` (without the empty line); return None if the complete server has to serve it."""
    lines = head.split(b"\r\n")
    if len(lines) > _HEADERS_MAX:
        return None
    request_line = _REQUEST_LINE.fullmatch(lines[0])
    if request_line is None:
        return None
    method, path, raw_query = request_line.groups()
    route = _route(path.decode(), method == b"GET" and raw_query is not None)
    if route is None or method.decode() not in route[0].methods:
        return None
    headers = _headers(lines)
    if headers is None:
        return None
    length = headers.pop("", None)
    if length is None:
        if method == b"POST":
            return None
        length = "0"
    query: dict[str, str] = {}
    if raw_query:
        try:
            pairs = parse_qsl(
                raw_query.decode(), keep_blank_values=True, max_num_fields=_PARAMETERS_MAX
            )
        except ValueError:
            return None
        for name, value in pairs:
            query[name] = f"{query[name]};{value}" if name in query else value
    if path == b"/" and method == b"GET" and not ("id" in query or "deviceid" in query):
        return None  # the page
    device_format, template, token, device = route
    return RequestHead(device_format, template, token, device, query, headers, int(length))


class LengthSpan(NamedTuple):
    """The position of the digits of Content-Length in a recognised head."""

    start: int
    end: int

    def of_same(self, known: bytes, head: bytes) -> int | None:
        """Return the new length if `head` differs from `known` only in the length, or None."""
        start, end = self
        end_there = end + len(head) - len(known)
        digits = head[start:end_there]
        if (
            head[:start] != known[:start]
            or head[end_there:] != known[end:]
            or not digits.isdigit()
            or len(digits) > _LENGTH_DIGITS_MAX
        ):
            return None
        return int(digits)


def length_span(head: bytes) -> LengthSpan | None:
    """Return the span of a recognised head; None if it has no Content-Length."""
    found = _LENGTH.search(head)
    return None if found is None else LengthSpan(*found.span(1))


def _headers(lines: list[bytes]) -> dict[str, str] | None:
    """Return the headers that matter, the length as ""; None if the request is not plain."""
    headers: dict[str, str] = {}
    for index in range(1, len(lines)):
        found = _HEADER.fullmatch(lines[index])
        if found is None:
            return None
        name = found[1].lower()
        kept = _KEPT.get(name)
        if kept is not None:
            if kept in headers:
                return None
            headers[kept] = (found[2] or b"").decode()
        elif name == b"content-length":
            value = found[2] or b""
            if "" in headers or not value.isdigit() or len(value) > _LENGTH_DIGITS_MAX:
                return None
            headers[""] = value.decode()
        elif name == b"connection":
            if (found[2] or b"").lower() != b"keep-alive":
                return None
        elif name in _UNUSUAL:
            return None
    return headers if is_authority(headers.get("Host", "@")) else None


def _route(path: str, with_query: bool) -> tuple[Format, str, str | None, str | None] | None:
    literal = _LITERAL.get(path)
    if literal is not None:
        if path == "/" and with_query:
            return AT_ROOT, path, None, None
        return (*literal, None, None)
    before, _, last = path.rpartition("/")
    found = _TEMPLATES.get((before, 1))
    if found is not None:
        return (*found, last, None) if last else None
    before, _, token = before.rpartition("/")
    found = _TEMPLATES.get((before, 2))
    if found is not None and last and token:
        return (*found, token, last)
    return None
