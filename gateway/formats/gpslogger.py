"""GPSLogger for Android, custom URL: users name parameters, usually after the app's placeholders.

Suggested: `/gpslogger?lat=%LAT&lon=%LON&timestamp=%TIMESTAMP&acc=%ACC&alt=%ALT&spd=%SPD&dir=%DIR
&batt=%BATT&sat=%SAT&desc=%DESC&aid=%AID`. The names of the app's `%ALL` and of its Home Assistant
form (`latitude`, `direction`, ...) are accepted as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.formats import Context, Parsed
from gateway.formats.values import (
    Unacceptable,
    boolean,
    build_fix,
    decode_json,
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

SOURCE: Final = "gpslogger"

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "longitude"),
    "time": ("timestamp", "time", "timeoffset", "tst"),
    "accuracy": ("acc", "accuracy"),
    "altitude": ("alt", "altitude"),
    "speed": ("spd", "speed"),
    "speed_kmh": ("spd_kph",),
    "course": ("dir", "direction", "bearing"),
    "battery": ("batt", "battery"),
    "charging": ("ischarging",),
    "device": ("device", "ser", "aid", "id"),
}
_KNOWN: Final = frozenset(name for names in _NAMES.values() for name in names)


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one fix from the URL, a form or JSON."""
    parsed = Parsed()
    raw = body
    try:
        if body.lstrip()[:1] == b"{":
            members = decode_json(body)
            assert isinstance(members, dict)
            values: dict[str, Any] = {**members, **(context.query or {})}
        else:
            values, raw = {}, body
            form, raw = query_or_form(body, context)
            values.update(form)
        # Placeholders are case-insensitive, and users may write parameter names in capitals, too.
        values = {
            name.lower(): value for name, value in values.items() if not _is_placeholder(value)
        }
        if not values:
            return parsed
        time_given = _value(values, "time")
        time = time_ms(time_given)
        if time is None and time_given is not None:
            raise Unacceptable("timestamp is not a time")
        speed = positive(_value(values, "speed"))
        speed_kmh = positive(_value(values, "speed_kmh"))
        if speed is None and speed_kmh is not None:
            speed = round(speed_kmh / 3.6, 4)
        parsed.fixes.append(
            build_fix(
                context,
                SOURCE,
                device_key(context, _value(values, "device"), SOURCE),
                _value(values, "lat"),
                _value(values, "lon"),
                time,
                trigger=text(values.get("desc"), 64),
                # The app writes 0.0 when it does not know the accuracy.
                accuracy=positive(_value(values, "accuracy")) or None,
                altitude=number(_value(values, "altitude")),
                speed=speed,
                course=degrees(_value(values, "course")),
                battery=percent(_value(values, "battery")),
                charging=boolean(_value(values, "charging")),
                attributes=other_members(values, _KNOWN),
            )
        )
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), raw)
    return parsed


def _is_placeholder(value: object) -> bool:
    return isinstance(value, str) and (value.startswith("%") or not value)


def _value(values: Mapping[str, Any], member: str) -> Any:
    for name in _NAMES[member]:
        value = values.get(name)
        if value is not None:
            return value
    return None
