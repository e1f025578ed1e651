"""Colota (Android): flat JSON or URL parameters, speed in m/s.

Its other templates (Overland batches, Traccar, OwnTracks) are recognised, so that one address
serves whichever template the user has chosen.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.formats import Context, Parsed, overland, traccar
from gateway.formats.values import (
    Unacceptable,
    build_fix,
    charging_state,
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

SOURCE: Final = "colota"

_FIX_MEMBERS: Final = frozenset(
    [
        "lat",
        "latitude",
        "lon",
        "longitude",
        "acc",
        "accuracy",
        "alt",
        "altitude",
        "vel",
        "speed",
        "batt",
        "battery",
        "bs",
        "charge",
        "tst",
        "timestamp",
        "bear",
        "cog",
        "bearing",
        "heading",
        "id",
        "device",
        "device_id",
        "_type",
    ]
)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one fix, or the content of Colota's Overland and Traccar templates."""
    parsed = Parsed()
    raw = body
    try:
        if body.lstrip()[:1] in (b"{", b"["):
            values = decode_json(body)
            if not isinstance(values, dict):
                raise Unacceptable("not a JSON object")
            if "locations" in values:
                return overland.parse(body, context)
            if "location" in values and "lat" not in values:
                return traccar.parse(body, context)
            values = {**values, **(context.query or {})}
        else:
            form, raw = query_or_form(body, context)
            values = dict(form)
        if not values:
            return parsed
        parsed.fixes.append(_fix(values, context))
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), raw)
    return parsed


def _fix(values: dict[str, Any], context: Context) -> Any:
    def first(*names: str) -> Any:
        for name in names:
            value = values.get(name)
            if value is not None and value != "":
                return value
        return None

    time_given = first("tst", "timestamp", "time")
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("tst is not a time")
    return build_fix(
        context,
        SOURCE,
        device_key(context, first("device", "device_id", "id", "tid"), SOURCE),
        first("lat", "latitude"),
        first("lon", "longitude"),
        time,
        accuracy=positive(first("acc", "accuracy")),
        altitude=number(first("alt", "altitude")),
        speed=positive(first("vel", "speed")),
        course=degrees(first("bear", "cog", "bearing", "heading")),
        battery=percent(first("batt", "battery")),
        charging=charging_state(first("bs", "charge")),
        attributes=other_members(values, _FIX_MEMBERS),
    )
