"""Traccar Client 9 and later: JSON, one location per request.

Versions before 9 use the OsmAnd protocol at the same address, so a form is parsed as OsmAnd.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed, osmand
from gateway.formats.values import (
    Unacceptable,
    boolean,
    build_event,
    build_fix,
    decode_json,
    degrees,
    device_key,
    number,
    other_members,
    positive,
    reject,
    share,
    text,
    time_ms,
)

SOURCE: Final = "traccar"

_FIX_MEMBERS: Final = frozenset(
    [
        "timestamp",
        "coords",
        "battery",
        "event",
        "_",
        "latitude",
        "longitude",
        "accuracy",
        "altitude",
        "altitude_accuracy",
        "speed",
        "heading",
        "activity",
    ]
)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse a fix, or an event if there are no coordinates (heartbeat)."""
    start = body.lstrip()[:1]
    if start != b"{" and (context.query or b"=" in body[:256]):
        return osmand.parse(body, context)
    parsed = Parsed()
    if not start:
        return parsed
    try:
        envelope = decode_json(body)
        if not isinstance(envelope, dict):
            raise Unacceptable("not a JSON object")
        device = device_key(context, envelope.get("device_id"), SOURCE)
        locations = envelope.get("location")
        if not isinstance(locations, list):
            locations = [locations]
        if len(locations) > BATCH_ITEMS_MAX:
            parsed.refused = f"{len(locations)} locations; {BATCH_ITEMS_MAX} are allowed"
            return parsed
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), body)
    for index, location in enumerate(locations):
        try:
            _parse_location(location, device, context, parsed)
        except Unacceptable as reason:
            raw = body
            if len(locations) > 1:
                # A location of a batch is kept with its own bytes, not with those of the whole
                # batch.
                named = text(envelope.get("device_id"), 200)
                raw = msgspec.json.encode({"device_id": named, "location": location})
            reject(parsed, context, SOURCE, str(reason), raw, index)
    return parsed


def _parse_location(location: Any, device: str, context: Context, parsed: Parsed) -> None:
    if not isinstance(location, dict):
        raise Unacceptable("`location` is missing or not an object")
    timestamp = location.get("timestamp")
    time = time_ms(timestamp)
    if time is None and timestamp is not None:
        raise Unacceptable("location.timestamp is not a time")
    trigger = text(location.get("event"), 64)
    attributes = other_members(location, _FIX_MEMBERS)
    if attributes.get("extras") == {}:
        del attributes["extras"]
    activity = location.get("activity")
    if isinstance(activity, dict) and (kind := text(activity.get("type"), 64)):
        attributes["activity"] = kind
    coordinates = location.get("coords")
    if coordinates is None and "latitude" in location:
        coordinates = location  # flat, as Dawarich accepts it
    if coordinates is None:
        parsed.events.append(
            build_event(context, SOURCE, device, trigger or "heartbeat", time, attributes)
        )
        return
    if not isinstance(coordinates, dict):
        raise Unacceptable("location.coords is not an object")
    battery = location.get("battery")
    if not isinstance(battery, dict):
        battery = {"level": battery}
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            coordinates.get("latitude"),
            coordinates.get("longitude"),
            time,
            trigger=trigger,
            accuracy=positive(coordinates.get("accuracy")),
            altitude=number(coordinates.get("altitude")),
            vertical_accuracy=positive(coordinates.get("altitude_accuracy")),
            speed=positive(coordinates.get("speed")),
            course=degrees(coordinates.get("heading")),
            battery=share(battery.get("level")),
            charging=boolean(battery.get("is_charging")),
            attributes=attributes,
        )
    )
