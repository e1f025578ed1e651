"""GPSLogger for Android, custom URL: users name parameters, usually after the app's placeholders.

Suggested: `/gpslogger?lat=%LAT&lon=%LON&timestamp=%TIMESTAMP&acc=%ACC&alt=%ALT&spd=%SPD&dir=%DIR
&batt=%BATT&sat=%SAT&desc=%DESC&aid=%AID`. The names of the app's `%ALL` and of its Home Assistant
form (`latitude`, `direction`, ...) are accepted as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.formats import Context, Parsed
from gateway.formats.members import Members
from gateway.formats.parameters import NO_VALUES, place_named, query_and_body
from gateway.formats.values import (
    Unacceptable,
    boolean,
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
from waylog.messages import Fix

SOURCE: Final = "gpslogger"

_LAT: Final = ("lat", "latitude")
_LON: Final = ("lon", "lng", "longitude")
_TIME: Final = ("timestamp", "time", "timeoffset", "tst")
_DEVICE: Final = ("device", "ser", "aid", "id")
_place = place_named(_LAT, _LON, _TIME)
#: What the app leaves in place of a value that it does not have.
_PLACEHOLDER: Final = re.compile(r"%[A-Za-z_]+")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fixes of the URL, a form or JSON."""
    parsed = Parsed()
    raw = body
    try:
        # Placeholders are case-insensitive, and users may write parameter names in capitals, too.
        query = _small_names(context.query or {})
        in_small_letters = msgspec.structs.replace(context, query=query)
        items, raw = query_and_body(body, in_small_letters, _place, nested=True)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), raw)
    known = [each for each in map(_known, items) if each]
    if not known:
        return Parsed(malformed=NO_VALUES)
    for index, item in enumerate(known):
        try:
            parsed.fixes.append(_fix(Members(item), context))
        except Unacceptable as reason:
            own = raw if len(known) == 1 else msgspec.json.encode(item)
            named = Members(item).peek(*_DEVICE)
            reject(parsed, context, SOURCE, str(reason), own, index, named=named)
    return parsed


def _fix(members: Members, context: Context) -> Fix:
    time_given = members.value(*_TIME)
    time = time_ms(time_given)
    if time is None and time_given is not None:
        raise Unacceptable("timestamp is not a time")
    speed = members.read(positive, "spd", "speed")
    if speed is None:
        speed_kmh = members.read(positive, "spd_kph")
        speed = None if speed_kmh is None else round(speed_kmh / 3.6, 4)
    named = members.device(context.device, *_DEVICE)
    return build_fix(
        context,
        SOURCE,
        device_key(context, named, SOURCE),
        members.value(*_LAT),
        members.value(*_LON),
        time,
        trigger=text(members.peek("desc"), 64),
        # The app writes 0.0 when it does not know the accuracy.
        accuracy=members.read(positive, "acc", "accuracy") or None,
        altitude=members.read(number, "alt", "altitude"),
        speed=speed,
        course=members.read(degrees, "dir", "direction", "bearing"),
        battery=members.read(percent, "batt", "battery"),
        charging=members.read(boolean, "ischarging"),
        attributes=members.others(),
    )


def _known(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in _small_names(item).items()
        if not (isinstance(value, str) and (not value or _PLACEHOLDER.fullmatch(value)))
    }


def _small_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by their names in small letters.

    Of names that differ only in that, one without capitals counts, else the first; others stay as
    they are. So no name is searched for, whatever a client sends.
    """
    small = {name: value for name, value in values.items() if name == name.lower()}
    for name, value in values.items():
        if name != (lowered := name.lower()):
            small[name if lowered in small else lowered] = value
    return small
