"""PhoneTrack (Nextcloud): requests of its own app and of the loggers that imitate it.

One point as parameters (`logGet`, `logPost`, `log/osmand`, `log/gpslogger`, `log/locusmap`), or
many as rows of an array (`logPostMultiple`). Speeds are m/s. The token and the name of the device
are in the path, and never reach this parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.beside_json import attach
from gateway.formats.members import Members
from gateway.formats.parameters import NO_VALUES, place_named, query_and_body
from gateway.formats.values import (
    Unacceptable,
    build_fix,
    decode_json,
    degrees,
    device_key,
    number,
    percent,
    positive,
    reject,
    time_ms,
)
from waylog.messages import Fix

SOURCE: Final = "phonetrack"

#: The members of a row of `points`, in order.
_ROW: Final = (
    *("lat", "lon", "timestamp", "alt", "acc", "bat", "sat", "useragent", "speed", "bearing"),
)
_LAT: Final = ("lat", "latitude")
_LON: Final = ("lon", "longitude")
_TIME: Final = ("timestamp", "time", "datetime")
_place = place_named(_LAT, _LON, _TIME, "points")
#: What an app leaves in place of a value that it does not have.
_PLACEHOLDER: Final = re.compile(r"%[A-Za-z_]+")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fixes of URL and body, and those of `points`."""
    parsed = Parsed()
    raw = body
    try:
        items, raw = query_and_body(body, context, _place, nested=True)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), raw)
    if not items:
        return Parsed(malformed=NO_VALUES)
    for index, item in enumerate(items):
        try:
            if item.get("points") is not None:
                _parse_points(item, context, parsed)
            else:
                parsed.fixes.append(_fix(item, context))
        except Unacceptable as reason:
            own = raw if len(items) == 1 else msgspec.json.encode(item)
            reject(parsed, context, SOURCE, str(reason), own, index)
    return parsed


def _parse_points(values: dict[str, Any], context: Context, parsed: Parsed) -> None:
    values = dict(values)
    points = values.pop("points")
    if isinstance(points, str):
        points = decode_json(points.encode())
    if not isinstance(points, list):
        raise Unacceptable("`points` is not an array")
    if len(points) > BATCH_ITEMS_MAX:
        parsed.refused = f"{len(points)} points in one request; {BATCH_ITEMS_MAX} are allowed"
        return
    for index, point in enumerate(points):
        try:
            parsed.fixes.append(_fix(_row(point), context))
        except Unacceptable as reason:
            reject(parsed, context, SOURCE, str(reason), msgspec.json.encode(point), index)
    if _place(values) is not None or (values and not parsed.fixes):
        # A position beside the rows. If it is none, that must not cost the rows.
        try:
            parsed.fixes.append(_fix(values, context))
        except Unacceptable as reason:
            reject(parsed, context, SOURCE, str(reason), msgspec.json.encode(values), len(points))
    else:
        # Once, not for each row: a batch may be large.
        attach(parsed, Members(values).others())


def _row(point: object) -> dict[str, Any]:
    if isinstance(point, dict):
        return point
    if not isinstance(point, list):
        raise Unacceptable("a point is an array of lat, lon, timestamp, ...")
    row = dict(zip(_ROW, point, strict=False))
    if len(point) > len(_ROW):
        row["more"] = point[len(_ROW) :]
    return row


def _fix(values: Mapping[str, Any], context: Context) -> Fix:
    # An app writes nothing for an unknown value, or leaves its placeholder in place.
    members = Members(
        {
            name: value
            for name, value in values.items()
            if not (isinstance(value, str) and _PLACEHOLDER.fullmatch(value))
        }
    )
    time_given = members.value(*_TIME)
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("timestamp is not a time")
    return build_fix(
        context,
        SOURCE,
        device_key(context, None, SOURCE),
        members.value(*_LAT),
        members.value(*_LON),
        time,
        accuracy=members.read(positive, "acc", "accuracy"),
        altitude=members.read(number, "alt", "altitude"),
        speed=members.read(positive, "speed", "spd"),
        course=members.read(degrees, "bearing", "dir"),
        battery=members.read(percent, "bat", "batt", "battery"),
        attributes=members.others(),
    )
