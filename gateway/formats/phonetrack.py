"""PhoneTrack (Nextcloud): requests of its own app and of the loggers that imitate it.

One point as parameters (`logGet`, `logPost`, `log/osmand`, `log/gpslogger`, `log/locusmap`), or
many as rows of an array (`logPostMultiple`). Speeds are m/s. The token and the name of the device
are in the path, and never reach this parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.values import (
    Unacceptable,
    build_fix,
    build_rejected,
    decode_json,
    degrees,
    device_key,
    number,
    other_members,
    percent,
    positive,
    query_or_form,
    reject,
    time_ms,
)

SOURCE: Final = "phonetrack"

#: The members of a row of `points`, in order.
_ROW: Final = (
    *("lat", "lon", "timestamp", "alt", "acc", "bat", "sat", "useragent", "speed", "bearing"),
)
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "lat": ("lat", "latitude"),
    "lon": ("lon", "longitude"),
    "time": ("timestamp", "time", "datetime"),
    "accuracy": ("acc", "accuracy"),
    "altitude": ("alt", "altitude"),
    "speed": ("speed", "spd"),
    "course": ("bearing", "dir"),
    "battery": ("bat", "batt", "battery"),
}
_KNOWN: Final = frozenset(name for names in _NAMES.values() for name in names) | {"points"}


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one fix, or those of `points`."""
    parsed = Parsed()
    raw = body
    try:
        if body.lstrip()[:1] in (b"{", b"["):
            members = decode_json(body)
            if not isinstance(members, dict):
                raise Unacceptable("not a JSON object")
            values: dict[str, Any] = {**members, **(context.query or {})}
        else:
            form, raw = query_or_form(body, context)
            values = dict(form)
        points = values.get("points")
        if points is not None:
            _parse_points(points, context, parsed)
        elif values:
            parsed.fixes.append(_fix(values, context))
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), raw)
    return parsed


def _parse_points(points: object, context: Context, parsed: Parsed) -> None:
    if isinstance(points, str):
        points = decode_json(points.encode())
    if not isinstance(points, list):
        raise Unacceptable("`points` is not an array")
    if len(points) > BATCH_ITEMS_MAX:
        parsed.refused = f"{len(points)} points in one request; {BATCH_ITEMS_MAX} are allowed"
        return
    for index, point in enumerate(points):
        try:
            values = dict(zip(_ROW, point, strict=False)) if isinstance(point, list) else point
            if not isinstance(values, dict):
                raise Unacceptable("a point is an array of lat, lon, timestamp, ...")
            parsed.fixes.append(_fix(values, context))
        except Unacceptable as reason:
            rejected = build_rejected(context, SOURCE, str(reason), repr(point).encode())
            parsed.rejected.append(rejected)
            parsed.rejected_at.append(index)


def _fix(values: Mapping[str, Any], context: Context) -> Any:
    def first(member: str) -> Any:
        for name in _NAMES[member]:
            value = values.get(name)
            # An app writes nothing for an unknown value, or leaves its placeholder in place.
            if value is not None and value != "" and not str(value).startswith("%"):
                return value
        return None

    time_given = first("time")
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("timestamp is not a time")
    return build_fix(
        context,
        SOURCE,
        device_key(context, None, SOURCE),
        first("lat"),
        first("lon"),
        time,
        accuracy=positive(first("accuracy")),
        altitude=number(first("altitude")),
        speed=positive(first("speed")),
        course=degrees(first("course")),
        battery=percent(first("battery")),
        attributes=other_members(values, _KNOWN),
    )
