"""The OsmAnd protocol of Traccar: parameters in the URL or in a form.

https://www.traccar.org/osmand/. Used by Traccar Client up to version 8, the OsmAnd app, Colota and
many scripts. `speed` is in knots unless `speed_unit` in the URL says `ms` or `kmh`: the OsmAnd app
and Colota send m/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from gateway.formats import Context, Parsed
from gateway.formats.members import Members
from gateway.formats.parameters import NO_VALUES, place_named, query_and_body
from gateway.formats.values import (
    Unacceptable,
    boolean,
    build_event,
    build_fix,
    degrees,
    device_key,
    number,
    percent,
    positive,
    reject,
    text,
    time_ms,
)

SOURCE: Final = "osmand"

_METRES_PER_S: Final = {
    "kn": 1852 / 3600,
    "knots": 1852 / 3600,
    "kmh": 1 / 3.6,
    "km/h": 1 / 3.6,
    "ms": 1.0,
    "m/s": 1.0,
}

_DEVICE: Final = ("id", "deviceid")
#: Settings of the URL, and a credential of Traccar's push service.
_NOT_KEPT: Final = ("speed_unit", "notificationToken")

_place = place_named(("lat",), ("lon",), ("timestamp",), "location")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fixes of URL and form; without coordinates an event `status`, a sign of life."""
    parsed = Parsed()
    raw = body
    try:
        items, raw = query_and_body(body, context, _place, not_kept=_NOT_KEPT)
        if not any(item.keys() - {"speed_unit"} for item in items):
            return Parsed(malformed=NO_VALUES)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), raw)
    for index, item in enumerate(items):
        try:
            _parse_item(item, context, parsed, in_json=body.lstrip()[:1] == b"{")
        except Unacceptable as reason:
            own = raw if len(items) == 1 else urlencode(item).encode()
            named = Members(item).peek(*_DEVICE)
            reject(parsed, context, SOURCE, str(reason), own, index, named=named)
    return parsed


def _parse_item(
    values: Mapping[str, Any], context: Context, parsed: Parsed, *, in_json: bool
) -> None:
    members = Members(values, _NOT_KEPT)
    named = members.device(context.device, *_DEVICE)
    device = device_key(context, named, SOURCE)
    time_given = members.value("timestamp")
    time = None if time_given is None else time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("timestamp is neither seconds, milliseconds nor ISO 8601")
    lat, lon = _coordinates(members)
    if lat is None and lon is None:
        if in_json:
            raise Unacceptable("no coordinates: the JSON has neither lat and lon nor location")
        attributes = _with_types(members.others())
        parsed.events.append(build_event(context, SOURCE, device, "status", time, attributes))
        return
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            lat,
            lon,
            time,
            trigger=text(members.peek("event", "alarm"), 64),
            accuracy=members.read(positive, "accuracy"),
            altitude=members.read(number, "altitude"),
            speed=_speed(members),
            course=members.read(degrees, "bearing", "heading"),
            battery=members.read(percent, "batt"),
            charging=members.read(_charging, "charge"),
            attributes=_with_types(members.others()),
        )
    )


def _coordinates(members: Members) -> tuple[Any, Any]:
    if members.peek("lat", "lon") is None and (location := members.value("location")):
        lat, _, lon = str(location).partition(",")
        return lat or None, lon or None
    return members.value("lat"), members.value("lon")


def _speed(members: Members) -> float | None:
    unit = str(members.peek("speed_unit") or "kn").lower()
    speed = members.read(positive, "speed")
    factor = _METRES_PER_S.get(unit, _METRES_PER_S["kn"])
    return None if speed is None else round(speed * factor, 4)


def _charging(value: object) -> bool | None:
    state = number(value)
    return boolean(value) if state is None else state > 0


def _with_types(others: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in others.items():
        if not isinstance(value, str):
            attributes[name] = value
        elif value in ("true", "false"):
            attributes[name] = value == "true"
        else:
            measured = number(value)
            # Values such as 0049... and 1e5 may be names as well as numbers, and stay text.
            plain = measured is not None and str(measured).removesuffix(".0") == value
            attributes[name] = measured if plain else value
    return attributes
