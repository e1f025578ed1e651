"""The requests of the client, without any I/O: paths, bodies, what to do with an answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from waylog.client.answers import Position, TrackPoint
from waylog.client.errors import ApiError
from waylog.malformed import MALFORMED
from waylog.track_elements import PLURALS

Answer = TypeVar("Answer")

#: A time: ms since 1970 UTC, or a datetime that knows its zone.
Time = int | datetime

#: Positions and bytes of one request; the gateway takes ten times and twice as much.
BATCH_POSITIONS: Final = 1_000
BATCH_BYTES: Final = 4 * 1024 * 1024
#: Seconds between two attempts where the gateway names none.
PAUSE_S: Final = 1.0
_REASON_CHARACTERS: Final = 500
#: Answers after which the same request may succeed.
_LATER: Final = frozenset((429, 502, 503, 504))

#: What a track has of its points beside their times and places.
_MEASURED: Final = ("accuracy", "speed", "course")

_encode: Final = msgspec.json.Encoder().encode


class _Error(msgspec.Struct):
    error: Any = None


class Numbered(msgspec.Struct, frozen=True):
    """Positions of one request, and the index of the first one."""

    first: int
    body: bytes


def authorization(user: str | None, token: str) -> str:
    """Return the header's value: Basic with a user, otherwise Bearer."""
    if user is None:
        return f"Bearer {token}"
    if ":" in user:
        raise ValueError("a user's name has no colon")
    return "Basic " + b64encode(f"{user}:{token}".encode()).decode()


def milliseconds(time: Time) -> int:
    """Return a time in ms since 1970; raises ValueError for a datetime without a zone."""
    if isinstance(time, int):
        return time
    if time.tzinfo is None:
        raise ValueError("a datetime needs a time zone, such as datetime.now(UTC)")
    return round(time.timestamp() * 1000)


def of_device(device: str, what: str = "", **query: str | int | None) -> str:
    """Return the path of something of a device, with the parts of the query that are not None."""
    path = f"/v1/devices/{quote(device, safe='')}"
    return with_query(f"{path}/{what}" if what else path, **query)


def with_query(path: str, **query: str | int | None) -> str:
    """Return a path with the parts of a query that are not None."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def period(since: Time | None, until: Time | None) -> dict[str, str | int | None]:
    """Return the parts of a query that say from when to when."""
    return {
        "from": None if since is None else milliseconds(since),
        "to": None if until is None else milliseconds(until),
    }


def batches(positions: Iterable[Position]) -> Iterator[Numbered]:
    """Yield positions as bodies (NDJSON) of requests."""
    lines: list[bytes] = []
    size = first = 0
    for position in positions:
        line = _encode(position)
        if lines and (len(lines) == BATCH_POSITIONS or size + len(line) >= BATCH_BYTES):
            yield Numbered(first, b"\n".join(lines))
            first += len(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield Numbered(first, b"\n".join(lines))


def is_later(status: int) -> bool:
    """Tell whether the same request may succeed later."""
    return status in _LATER


def retry_after_s(header: str | None) -> float:
    """Return the seconds that an answer asks to wait."""
    return max(0.0, float(header)) if header is not None and header.isdecimal() else PAUSE_S


def error_of(status: int, body: bytes) -> ApiError:
    """Return the error of an answer that is no success."""
    reason: Any = None
    with suppress(*MALFORMED):
        reason = msgspec.json.decode(body, type=_Error).error
    if isinstance(reason, dict):
        reason = reason.get("message")
    if not isinstance(reason, str) or not reason:
        reason = body.decode("utf-8", "replace").strip()[:_REASON_CHARACTERS] or "no reason given"
    return ApiError(status, reason)


def decoded(body: bytes, kind: type[Answer]) -> Answer:
    """Return an answer; raises ApiError if it is none of a gateway of Waylog."""
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise ApiError(200, f"this is no answer of a Waylog gateway: {error}") from error


class _Feature(msgspec.Struct):
    geometry: dict[str, Any]
    properties: dict[str, Any]


class _Track(msgspec.Struct):
    features: list[_Feature]


def track_points(body: bytes) -> list[TrackPoint]:
    """Return the points of a track in GeoJSON."""
    points: list[TrackPoint] = []
    for feature in decoded(body, _Track).features:
        coordinates = feature.geometry["coordinates"]
        if feature.geometry["type"] == "Point":
            coordinates = [coordinates]
        more = feature.properties
        times = more["times"]
        unknown = [None] * len(times)
        measured = (more.get(PLURALS[name]) or unknown for name in _MEASURED)
        for place, time, accuracy, speed, course in zip(coordinates, times, *measured, strict=True):
            altitude = place[2] if len(place) > 2 else None
            points.append(TrackPoint(time, place[1], place[0], altitude, accuracy, speed, course))
    return points
