"""Overland (iOS and Android ports), GPSLogger's Dawarich sender and Colota's batches.

The body is an envelope of GeoJSON features. The app deletes a batch when it reads `{"result":"ok"}`
and repeats all of it otherwise, so a batch is acknowledged as a whole or not at all.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    build_rejected,
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

SOURCE: Final = "overland"

_FIX_MEMBERS: Final = frozenset(
    [
        "timestamp",
        "altitude",
        "horizontal_accuracy",
        "vertical_accuracy",
        "speed",
        "course",
        "battery_state",
        "battery_level",
        "device_id",
        "locations_in_payload",
    ]
)
_CHARGING: Final = {"charging": True, "full": True, "unplugged": False}


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the features of `locations`, then `current`, then `trip`."""
    parsed = Parsed()
    if not body.strip():
        return parsed
    try:
        envelope = decode_json(body)
        if not isinstance(envelope, dict):
            raise Unacceptable("not a JSON object with `locations`")
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), body)
    locations = envelope.get("locations", [])
    if not isinstance(locations, list):
        return reject(parsed, context, SOURCE, "`locations` is not an array", body)
    if len(locations) > BATCH_ITEMS_MAX:
        parsed.refused = f"{len(locations)} locations in one request; {BATCH_ITEMS_MAX} are allowed"
        return parsed
    current = envelope.get("current")
    trip = envelope.get("trip")
    if not locations and current is None and trip is None and "locations" not in envelope:
        return reject(parsed, context, SOURCE, "`locations` is missing", body)
    device_of_envelope = text(envelope.get("device_id"), 1000)
    features = [*locations, current] if current is not None else locations
    for index, feature in enumerate(features):
        try:
            _parse_feature(feature, device_of_envelope, context, parsed)
        except Unacceptable as reason:
            raw = msgspec.json.encode(feature)
            parsed.rejected.append(build_rejected(context, SOURCE, str(reason), raw))
            parsed.rejected_at.append(index)
    if isinstance(trip, dict):
        try:
            device = device_key(context, trip.get("device_id") or device_of_envelope, SOURCE)
            _add_event("trip", trip, None, device, context, parsed)
        except Unacceptable as reason:
            reject(parsed, context, SOURCE, str(reason), msgspec.json.encode(trip), len(features))
    return parsed


def _parse_feature(
    feature: Any, device_of_envelope: str | None, context: Context, parsed: Parsed
) -> None:
    if not isinstance(feature, dict):
        raise Unacceptable("not a GeoJSON feature")
    properties = feature.get("properties")
    if not isinstance(properties, dict):
        raise Unacceptable("the feature has no properties")
    geometry = feature.get("geometry")
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    place: list[Any] | None = coordinates if isinstance(coordinates, list) else None
    named = text(properties.get("device_id"), 1000) or device_of_envelope
    device = device_key(context, named, SOURCE)
    action = text(properties.get("action"), 64)
    if action is not None or properties.get("type") == "trip":
        # Visits, trips and messages about the app itself are events, not fixes.
        _add_event(action or "trip", properties, place, device, context, parsed)
        return
    if place is None or len(place) < 2:
        raise Unacceptable("no coordinates: geometry.coordinates must be [lon, lat]")
    timestamp = properties.get("timestamp")
    time = time_ms(timestamp)
    if time is None and timestamp is not None:
        raise Unacceptable("properties.timestamp is not a time")
    altitude = number(properties.get("altitude"))
    if altitude is None and len(place) > 2:
        altitude = number(place[2])
    attributes = {
        name: value
        for name, value in other_members(properties, _FIX_MEMBERS).items()
        if not (name in ("speed_accuracy", "course_accuracy") and positive(value) is None)
    }
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            place[1],
            place[0],
            time,
            accuracy=positive(properties.get("horizontal_accuracy")),
            altitude=altitude,
            vertical_accuracy=positive(properties.get("vertical_accuracy")),
            speed=positive(properties.get("speed")),
            course=degrees(properties.get("course")),
            battery=share(properties.get("battery_level")),
            charging=_CHARGING.get(str(properties.get("battery_state"))),
            attributes=attributes,
        )
    )


def _add_event(
    kind: str,
    properties: dict[str, Any],
    place: list[Any] | None,
    device: str,
    context: Context,
    parsed: Parsed,
) -> None:
    attributes = other_members(properties, ("action", "device_id"))
    if place is not None and len(place) >= 2:
        attributes["lat"] = number(place[1])
        attributes["lon"] = number(place[0])
    time = time_ms(properties.get("timestamp"))
    for name in ("departure_date", "arrival_date", "end", "start"):
        time = time if time is not None else time_ms(properties.get(name))
    identity = "\0".join(
        str(properties.get(name, "")) for name in ("arrival_date", "departure_date", "start", "end")
    )
    parsed.events.append(build_event(context, SOURCE, device, kind, time, attributes, identity))
