"""Requests that carry values in several places: the URL, a form, a JSON object.

Whatever stands in one of them is used. A position in the URL and another one in the body are two
fixes; otherwise the places complement each other.
"""

from __future__ import annotations

import email
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from gateway.formats import Context
from gateway.formats.members import add_member, first_value
from gateway.formats.values import (
    SECRET_PARAMETERS,
    Unacceptable,
    decode_json,
    kind_of,
    number,
    parameters,
    time_ms,
)

_FORM_FIELDS_MAX: Final = 1000
#: Names that formats have for the device.
_DEVICE: Final = frozenset(
    ("id", "deviceid", "device", "device_id", "tid", "dev", "ser", "aid"),
)
#: Of the URL, settings that hold for a position in the body as well.
_SETTINGS: Final = _DEVICE | {"speed_unit"}

#: Returns what distinguishes a position, None if the values have none.
Place = Callable[[Mapping[str, Any]], "tuple[Any, ...] | None"]

#: The reason why a request without anything in it is malformed.
NO_VALUES: Final = (
    "the request has no values: send lat and lon (and timestamp, ...) in the URL or in the body"
)
EMPTY_BODY: Final = "the body is empty: send JSON, as the app does"


def place_named(
    lat: tuple[str, ...], lon: tuple[str, ...], time: tuple[str, ...], *more: str
) -> Place:
    """Return a function that finds a position by the names that a format has for its members.

    `more` are names of members that contain whole positions.
    """

    def place(values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        members = (lat, lon, *((name,) for name in more))
        found = [first_value(values, names)[1] for names in members]
        if all(each is None for each in found):
            return None
        known = (number(each) if index < 2 else each for index, each in enumerate(found))
        return (*known, time_ms(first_value(values, time)[1]))

    return place


def query_and_body(
    body: bytes,
    context: Context,
    place: Place,
    *,
    nested: bool = False,
    not_kept: Collection[str] = (),
) -> tuple[list[dict[str, Any]], bytes]:
    """Return the items of a request, and the raw bytes of all: of a form and the URL, urlencoded.

    There are two items if URL and body have a position each, else one, or none. In an item of both
    the URL takes precedence, and the values that differ from it are in a member `body`, except
    those named in `not_kept`. `nested` JSON may hold objects and arrays. Raises Unacceptable for a
    body that is neither a form nor a JSON object.
    """
    query: dict[str, Any] = dict(context.query or {})
    own, raw = _members_of(body, context, query, nested)
    if not own or not query:
        return ([own or query] if own or query else []), raw
    of_query, of_body = place(query), place(own)
    if of_query is not None and of_body is not None and _differ(of_query, of_body):
        settings = {name: value for name, value in query.items() if name in _SETTINGS}
        if not query.keys() & _DEVICE:
            query = {name: value for name, value in own.items() if name in _DEVICE} | query
        return [query, settings | own], raw
    merged = own | query
    compared = query.keys() - not_kept
    differing = {
        name: value
        for name, value in own.items()
        if name in compared and str(value) != query[name] and value not in (None, "")
    }
    if differing:
        add_member(merged, "body", differing)
    return [merged], raw


def _members_of(
    body: bytes, context: Context, query: Mapping[str, Any], nested: bool
) -> tuple[dict[str, Any], bytes]:
    start = body.lstrip()[:1]
    if not start:
        return {}, urlencode(query).encode()
    if nested and start in (b"{", b"["):
        members = decode_json(body)
        if not isinstance(members, dict):
            raise Unacceptable(f"not a JSON object but {kind_of(members)}")
        return _without_credentials(members), body
    pairs = _fields(body, context)
    if not pairs:
        raise Unacceptable("the body is neither a form nor a JSON object")
    form = parameters(pair for pair in pairs if pair[0] not in SECRET_PARAMETERS)
    # What the URL has in place of a value of the form follows, so that neither is lost.
    return dict(form), urlencode([*form.items(), *query.items()]).encode()


def _without_credentials(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in SECRET_PARAMETERS}


def _differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Tell whether two positions are not the same, nor parts of one."""
    pairs = zip(one, other, strict=True)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _fields(body: bytes, context: Context) -> list[tuple[str, str]]:
    start = body.lstrip()[:1]
    if start == b"{":
        return _scalar_members(decode_json(body))
    if start == b"[":
        raise Unacceptable("the body is a JSON array, where a form or a JSON object is expected")
    pairs = _multipart(body, context)
    return _urlencoded(body) if pairs is None else pairs


def _scalar_members(members: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in members.items():
        if isinstance(value, dict | list):
            raise Unacceptable(f"{name[:64]!r} is not a number or a text")
        if value is not None:
            pairs.append((name, value if isinstance(value, str) else str(value).lower()))
    return pairs


def _urlencoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode(), max_num_fields=_FORM_FIELDS_MAX, errors="replace")
    except ValueError as error:
        raise Unacceptable(f"not a form: {error}") from error


def _multipart(body: bytes, context: Context) -> list[tuple[str, str]] | None:
    """Return the text fields of a multipart form (RFC 7578), no files; None for other bodies."""
    content_type = (context.headers or {}).get("Content-Type", "")
    if not content_type.lower().startswith("multipart/form-data"):
        return None
    message = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\n\n" + body)
    if not message.is_multipart():
        raise Unacceptable("not a form: multipart/form-data without its parts")
    pairs: list[tuple[str, str]] = []
    for part in list(message.walk())[1 : 1 + _FORM_FIELDS_MAX]:
        name = part.get_param("name", header="Content-Disposition")
        value = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(value, bytes) and part.get_filename() is None:
            pairs.append((name, value.decode("utf-8", "replace")))
    return pairs
