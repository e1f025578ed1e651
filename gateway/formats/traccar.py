"""Traccar Client 9 and later: JSON, one location per request.

Versions before 9 use the OsmAnd protocol at the same address, so a form is parsed as OsmAnd.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.formats import BATCH_ITEMS_MAX, Context, Parsed, osmand
from gateway.formats.beside_json import RefusedItem, add_rest_of_batch, with_query
from gateway.formats.members import Members, add_member
from gateway.formats.values import (
    Unacceptable,
    boolean,
    build_event,
    build_fix,
    decode_json,
    degrees,
    device_key,
    kind_of,
    number,
    positive,
    reject,
    share,
    time_ms,
)

SOURCE: Final = "traccar"

#: The first names are the app's; the others those of templates of the library that it uses.
_LAT: Final = ("latitude", "lat")
_LON: Final = ("longitude", "lon", "lng")
_TIME: Final = ("timestamp", "ts", "time")
#: The position once more, for servers that read the body as a form.
_NOT_KEPT: Final = ("_",)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse a fix, or an event if there are no coordinates (heartbeat)."""
    start = body.lstrip()[:1]
    if start != b"{" and (not start or context.query or b"=" in body[:256]):
        return osmand.parse(body, context)
    return with_query(_parse_json(body, context), context, SOURCE)


def _parse_json(body: bytes, context: Context) -> Parsed:
    parsed = Parsed()
    try:
        members = decode_json(body)
        if not isinstance(members, dict):
            raise Unacceptable(f"not a JSON object but {kind_of(members)}")
        envelope = Members(members)
        named = envelope.device(context.device, "device_id")
        device = device_key(context, named, SOURCE)
        locations = envelope.value("location")
        if not isinstance(locations, list):
            locations = [locations]
        if len(locations) > BATCH_ITEMS_MAX:
            parsed.refused = f"{len(locations)} locations; {BATCH_ITEMS_MAX} are allowed"
            return parsed
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), body)
    refused: list[RefusedItem] = []
    for index, location in enumerate(locations):
        try:
            _parse_location(location, device, context, parsed)
        except Unacceptable as reason:
            refused.append(RefusedItem(index, str(reason), {"location": location}))
    add_rest_of_batch(parsed, context, SOURCE, envelope, refused)
    return parsed


def _parse_location(location: Any, device: str, context: Context, parsed: Parsed) -> None:
    if not isinstance(location, dict):
        raise Unacceptable("`location` is missing or not an object")
    members = Members(location, _NOT_KEPT)
    timestamp = members.value(*_TIME)
    time = time_ms(timestamp)
    if time is None and timestamp is not None:
        raise Unacceptable("location.timestamp is not a time")
    trigger = members.trigger("event")
    nested = _nested(members, "activity")
    coordinates = members.value("coords")
    if coordinates is None and members.peek(*_LAT) is None:
        attributes = _without_empty(members.others())
        _add_nested(attributes, "activity", nested, kind="type")
        parsed.events.append(
            build_event(context, SOURCE, device, trigger or "heartbeat", time, attributes)
        )
        return
    # Flat, as Dawarich accepts it, or in an object of its own.
    place = members if coordinates is None else _object(coordinates, "location.coords")
    level = members.peek("battery")
    battery = _nested(members, "battery") or Members({} if level is None else {"level": level})
    members.value("battery")
    values: dict[str, Any] = {
        "accuracy": place.read(positive, "accuracy"),
        "altitude": place.read(number, "altitude"),
        "vertical_accuracy": place.read(positive, "altitude_accuracy"),
        "speed": place.read(positive, "speed"),
        "course": place.read(degrees, "heading"),
        "battery": battery.read(share, "level"),
        "charging": battery.read(boolean, "is_charging"),
    }
    lat, lon = place.value(*_LAT), place.value(*_LON)
    attributes = _without_empty(members.others())
    if place is not members:
        for name, value in place.others().items():
            if positive(value) is not None or not (name.endswith("_accuracy") and number(value)):
                add_member(attributes, name, value)
    _add_nested(attributes, "battery", battery)
    _add_nested(attributes, "activity", nested, kind="type")
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            lat,
            lon,
            time,
            trigger=trigger,
            **values,
            attributes=attributes,
        )
    )


def _object(value: object, name: str) -> Members:
    if not isinstance(value, dict):
        raise Unacceptable(f"{name} is not an object")
    return Members(value)


def _nested(members: Members, name: str) -> Members | None:
    """Return the members of an object in the location; None if there is none of this name."""
    value = members.peek(name)
    return Members(members.value(name)) if isinstance(value, dict) else None


def _add_nested(
    attributes: dict[str, Any], name: str, members: Members | None, kind: str = ""
) -> None:
    """Add what an object in the location has: its kind under its name, all else after that."""
    if members is None:
        return
    if kind and (found := members.value(kind)) is not None:
        add_member(attributes, name, found)
    for member, value in members.others().items():
        add_member(attributes, f"{name}_{member}", value)


def _without_empty(attributes: dict[str, Any]) -> dict[str, Any]:
    if attributes.get("extras") == {}:
        del attributes["extras"]
    return attributes
