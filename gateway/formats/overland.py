"""Overland (iOS and Android ports), GPSLogger's Dawarich sender and Colota's batches.

The body is an envelope of GeoJSON features. The app deletes a batch when it reads `{"result":"ok"}`
and repeats all of it otherwise, so a batch is acknowledged as a whole or not at all.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed, osmand
from gateway.formats.beside_json import RefusedItem, add_rest_of_batch, with_query
from gateway.formats.members import Members, add_member, is_negative
from gateway.formats.parameters import EMPTY_BODY
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    decode_json,
    degrees,
    device_key,
    device_text,
    kind_of,
    number,
    positive,
    reject,
    share,
    text,
    time_ms,
)

SOURCE: Final = "overland"

_CHARGING: Final = {"charging": True, "full": True, "unplugged": False}
_ENVELOPE: Final = ("locations", "current", "trip")
#: Types of GeoJSON that hold features without Overland's envelope, as other apps send them.
GEOJSON_TYPES: Final = ("Feature", "FeatureCollection")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the features of `locations`, then `current`, then `trip`, which becomes an event.

    A GeoJSON Feature or FeatureCollection is parsed as if its features were `locations`.
    """
    return with_query(_parse(body, context), context, SOURCE, _of_url)


def _of_url(body: bytes, context: Context) -> Parsed:
    """Parse what the app has put into the URL: its newest point, whose speed is in m/s."""
    query = {"speed_unit": "ms", **(context.query or {})}
    return osmand.parse(body, msgspec.structs.replace(context, query=query))


def _parse(body: bytes, context: Context) -> Parsed:
    parsed = Parsed()
    if not body.strip():
        parsed.malformed = EMPTY_BODY
        return parsed
    try:
        envelope = decode_json(body)
        if not isinstance(envelope, dict):
            raise Unacceptable(f"not a JSON object but {kind_of(envelope)}")
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), body)
    envelope = _enveloped(envelope)
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
    others = Members(
        envelope, _ENVELOPE[:2] if trip is not None and not isinstance(trip, dict) else _ENVELOPE
    )
    device_of_envelope = others.device(context.device, "device_id")
    features = [*locations, current] if current is not None else locations
    refused: list[RefusedItem] = []
    for index, feature in enumerate(features):
        try:
            _parse_feature(feature, device_of_envelope, context, parsed)
        except Unacceptable as reason:
            item = {"locations": [feature]}
            refused.append(RefusedItem(index, str(reason), item, _named(feature)))
    if isinstance(trip, dict):
        try:
            members = Members(trip)
            named = members.device(context.device, "device_id") or device_of_envelope
            device = device_key(context, named, SOURCE)
            _add_event("trip", members, {}, device, context, parsed)
        except Unacceptable as reason:
            named = device_text(trip.get("device_id"))
            refused.append(RefusedItem(len(features), str(reason), {"trip": trip}, named))
    add_rest_of_batch(parsed, context, SOURCE, others, refused)
    return parsed


def _enveloped(body: dict[str, Any]) -> dict[str, Any]:
    """Return Overland's envelope of a body that may be GeoJSON without one."""
    if "locations" in body or body.get("type") not in GEOJSON_TYPES:
        return body
    if body["type"] == "Feature":
        return {"locations": [body]}
    others = {name: value for name, value in body.items() if name not in ("type", "features")}
    return others | {"locations": body.get("features", [])}


def _named(feature: Any) -> str | None:
    properties = feature.get("properties") if isinstance(feature, dict) else None
    return device_text(properties.get("device_id")) if isinstance(properties, dict) else None


def _parse_feature(
    feature: Any, device_of_envelope: str | None, context: Context, parsed: Parsed
) -> None:
    if not isinstance(feature, dict):
        raise Unacceptable("not a GeoJSON feature")
    properties = feature.get("properties")
    if not isinstance(properties, dict):
        raise Unacceptable("the feature has no properties")
    members = Members(properties)
    geometry = feature.get("geometry")
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    place: list[Any] | None = coordinates if isinstance(coordinates, list) else None
    named = members.device(context.device, "device_id") or device_of_envelope
    device = device_key(context, named, SOURCE)
    # What stands beside the properties, where GeoJSON allows members of one's own.
    beside = _beside(feature, "Feature", "geometry", "properties")
    if isinstance(geometry, dict):
        for name, value in _beside(geometry, "Point", "coordinates").items():
            add_member(beside, name, value)
    action = text(properties.get("action"), 64)
    if action is not None or properties.get("type") == "trip":
        # Visits, trips and messages about the app itself are events, not fixes.
        if place is not None and len(place) >= 2:
            add_member(beside, "lat", number(place[1]))
            add_member(beside, "lon", number(place[0]))
        _add_event(action or "trip", members, beside, device, context, parsed)
        return
    if place is None or len(place) < 2:
        raise Unacceptable("no coordinates: geometry.coordinates must be [lon, lat]")
    timestamp = members.value("timestamp")
    time = time_ms(timestamp)
    if time is None and timestamp is not None:
        raise Unacceptable("properties.timestamp is not a time")
    altitude = members.read(number, "altitude")
    if len(place) > 2:
        third = number(place[2])
        altitude = third if altitude is None else altitude
        if len(place) > 3 or altitude != third:
            beside["coordinates"] = place
    for name in ("speed_accuracy", "course_accuracy"):
        if is_negative(members.peek(name)):
            members.value(name)
    state = members.peek("battery_state")
    charging = _CHARGING.get(state) if isinstance(state, str) else None
    if charging is not None or state == "unknown":
        members.value("battery_state")
    values: dict[str, Any] = {
        "accuracy": members.read(positive, "horizontal_accuracy"),
        "vertical_accuracy": members.read(positive, "vertical_accuracy"),
        "speed": members.read(positive, "speed"),
        "course": members.read(degrees, "course"),
        "battery": members.read(share, "battery_level"),
        "charging": charging,
    }
    attributes = members.others()
    for name, value in beside.items():
        add_member(attributes, name, value)
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            place[1],
            place[0],
            time,
            altitude=altitude,
            **values,
            attributes=attributes,
        )
    )


def _beside(of: dict[str, Any], usual_type: str, *read: str) -> dict[str, Any]:
    """Return the members that GeoJSON does not define, and a type that is not the usual one."""
    return Members(of, (*read, "type") if of.get("type") == usual_type else read).others()


def _add_event(
    kind: str,
    members: Members,
    beside: dict[str, Any],
    device: str,
    context: Context,
    parsed: Parsed,
) -> None:
    times = ("timestamp", "departure_date", "arrival_date", "end", "start")
    time = next(
        (found for name in times if (found := time_ms(members.peek(name))) is not None), None
    )
    identity = "\0".join(
        str(members.peek(name) or "") for name in ("arrival_date", "departure_date", "start", "end")
    )
    attributes = members.others()
    if attributes.get("action") == kind:
        del attributes["action"]
    for name, value in beside.items():
        add_member(attributes, name, value)
    parsed.events.append(build_event(context, SOURCE, device, kind, time, attributes, identity))
