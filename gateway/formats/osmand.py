"""The OsmAnd protocol of Traccar: parameters in the URL or in a form.

https://www.traccar.org/osmand/. Used by Traccar Client up to version 8, the OsmAnd app, Colota and
many scripts. `speed` is in knots unless `speed_unit` in the URL says `ms` or `kmh`: the OsmAnd app
and Colota send m/s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.formats import Context, Parsed
from gateway.formats.values import (
    Unacceptable,
    boolean,
    build_event,
    build_fix,
    degrees,
    device_key,
    number,
    other_members,
    percent,
    positive,
    query_or_form,
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

_FIX_MEMBERS: Final = frozenset(
    [
        "id",
        "deviceid",
        "lat",
        "lon",
        "location",
        "timestamp",
        "speed",
        "bearing",
        "heading",
        "altitude",
        "accuracy",
        "batt",
        "charge",
        "speed_unit",
        "notificationToken",
    ]
)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one fix, or an event `status` if there are no coordinates (a sign of life)."""
    parsed = Parsed()
    raw = body
    try:
        values, raw = query_or_form(body, context)
        device = device_key(context, values.get("id") or values.get("deviceid"), SOURCE)
        attributes = _attributes(values)
        time_given = values.get("timestamp")
        time = time_ms(time_given) if time_given else None
        if time is None and time_given:
            raise Unacceptable("timestamp is neither seconds, milliseconds nor ISO 8601")
        lat, lon = _coordinates(values)
        if lat is None and lon is None:
            if body.lstrip()[:1] == b"{":
                raise Unacceptable("no coordinates: the JSON has neither lat and lon nor location")
            if values.keys() - {"speed_unit"}:
                parsed.events.append(
                    build_event(context, SOURCE, device, "status", time, attributes)
                )
            return parsed
        parsed.fixes.append(
            build_fix(
                context,
                SOURCE,
                device,
                lat,
                lon,
                time,
                trigger=text(values.get("event") or values.get("alarm"), 64),
                accuracy=positive(values.get("accuracy")),
                altitude=number(values.get("altitude")),
                speed=_speed(values),
                course=degrees(values.get("bearing") or values.get("heading")),
                battery=percent(values.get("batt")),
                charging=_charging(values.get("charge")),
                attributes=attributes,
            )
        )
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), raw)
    return parsed


def _coordinates(values: Mapping[str, str]) -> tuple[str | None, str | None]:
    lat, lon = values.get("lat"), values.get("lon")
    if lat is None and lon is None and (location := values.get("location")):
        lat, _, lon = location.partition(",")
    return lat or None, lon or None


def _speed(values: Mapping[str, str]) -> float | None:
    speed = positive(values.get("speed"))
    factor = _METRES_PER_S.get(values.get("speed_unit", "kn").lower(), _METRES_PER_S["kn"])
    return None if speed is None else round(speed * factor, 4)


def _charging(value: str | None) -> bool | None:
    state = number(value)
    return boolean(value) if state is None else state > 0


def _attributes(values: Mapping[str, str]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in other_members(values, _FIX_MEMBERS).items():
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
