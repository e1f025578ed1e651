"""Colota (Android): flat JSON or URL parameters, speed in m/s.

Its other templates (Overland batches, Traccar, OwnTracks) are recognised, so that one address
serves whichever template the user has chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed, osmand, overland, traccar
from gateway.formats.beside_json import with_query
from gateway.formats.members import Members
from gateway.formats.parameters import NO_VALUES, place_named, query_and_body
from gateway.formats.values import (
    Unacceptable,
    build_fix,
    charging_state,
    decode_json,
    degrees,
    device_key,
    is_no_charging_state,
    kind_of,
    number,
    percent,
    positive,
    reject,
    time_ms,
)
from waylog.messages import Fix

SOURCE: Final = "colota"

_LAT: Final = ("lat", "latitude")
_LON: Final = ("lon", "longitude")
_TIME: Final = ("tst", "timestamp", "time")
_DEVICE: Final = ("device", "device_id", "id")
_place = place_named(_LAT, _LON, _TIME)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fixes of URL and body, an array, or Colota's Overland and Traccar templates."""
    parsed = Parsed()
    raw = body
    try:
        if body.lstrip()[:1] == b"[":
            return _parse_array(body, context)
        if body.lstrip()[:1] == b"{":
            values = decode_json(body)
            if "locations" in values:
                return overland.parse(body, context)
            if "location" in values and "lat" not in values:
                return traccar.parse(body, context)
        items, raw = query_and_body(body, context, _place, nested=True)
        if not items:
            return Parsed(malformed=NO_VALUES)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), raw)
    for index, item in enumerate(items):
        try:
            parsed.fixes.append(_fix(item, context))
        except Unacceptable as reason:
            own = raw if len(items) == 1 else msgspec.json.encode(item)
            reject(parsed, context, SOURCE, str(reason), own, index, named=_named(item))
    return parsed


def _parse_array(body: bytes, context: Context) -> Parsed:
    """Parse an array of positions. Raises Unacceptable."""
    parsed = Parsed()
    items = decode_json(body)
    if len(items) > BATCH_ITEMS_MAX:
        parsed.refused = f"{len(items)} positions in one request; {BATCH_ITEMS_MAX} are allowed"
        return parsed
    for index, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise Unacceptable(f"not a JSON object but {kind_of(item)}")
            parsed.fixes.append(_fix(item, context))
        except Unacceptable as reason:
            raw = msgspec.json.encode(item)
            named = _named(item) if isinstance(item, dict) else None
            reject(parsed, context, SOURCE, str(reason), raw, index, named=named)
    in_url = _place(context.query or {}) is not None
    return with_query(parsed, context, SOURCE, parse if in_url else osmand.parse)


def _named(item: Mapping[str, Any]) -> object:
    return Members(item).peek(*_DEVICE, "tid")


def _fix(item: Mapping[str, Any], context: Context) -> Fix:
    members = Members(item, ("_type",) if item.get("_type") == "location" else ())
    time_given = members.value(*_TIME)
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("tst is not a time")
    named = members.device(context.device, *_DEVICE)
    if named is None and context.device is None:
        named = members.peek("tid")
    return build_fix(
        context,
        SOURCE,
        device_key(context, named, SOURCE),
        members.value(*_LAT),
        members.value(*_LON),
        time,
        accuracy=members.read(positive, "acc", "accuracy"),
        altitude=members.read(number, "alt", "altitude"),
        speed=members.read(positive, "vel", "speed"),
        course=members.read(degrees, "bear", "cog", "bearing", "heading"),
        battery=members.read(percent, "batt", "battery"),
        charging=members.read(charging_state, "bs", "charge", unknown=is_no_charging_state),
        attributes=members.others(),
    )
