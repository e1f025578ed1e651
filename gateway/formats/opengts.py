"""OpenGTS (as sent to PhoneTrack): one GPRMC sentence (NMEA 0183) in the URL or a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from gateway.formats import Context, Parsed
from gateway.formats.values import (
    Unacceptable,
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
)

SOURCE: Final = "opengts"

_KNOT_METRES_PER_S: Final = 1852 / 3600
_FIX_MEMBERS: Final = frozenset(("id", "dev", "acct", "alt", "batt", "gprmc", "device"))
_ANGLE = re.compile(r"(\d{1,3})(\d\d(?:\.\d+)?)")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse one fix, or an event `status` if the receiver has no valid position (status V)."""
    parsed = Parsed()
    raw = body
    try:
        values, raw = query_or_form(body, context)
        if not values:
            return parsed
        device = device_key(
            context, values.get("dev") or values.get("id") or values.get("device"), SOURCE
        )
        _parse_sentence(values, device, context, parsed)
    except Unacceptable as reason:
        reject(parsed, context, SOURCE, str(reason), raw)
    return parsed


def _parse_sentence(
    values: Mapping[str, str], device: str, context: Context, parsed: Parsed
) -> None:
    fields = values.get("gprmc", "").partition("*")[0].strip().split(",")
    if len(fields) < 10 or not fields[0].endswith("RMC"):
        raise Unacceptable("gprmc is not an RMC sentence of NMEA 0183")
    time = _time(fields[1], fields[9])
    attributes = other_members(values, _FIX_MEMBERS)
    if fields[2] != "A":
        parsed.events.append(build_event(context, SOURCE, device, "status", time, attributes))
        return
    speed = positive(fields[7])
    parsed.fixes.append(
        build_fix(
            context,
            SOURCE,
            device,
            _angle(fields[3], fields[4], "S"),
            _angle(fields[5], fields[6], "W"),
            time,
            altitude=number(values.get("alt")),
            speed=None if speed is None else round(speed * _KNOT_METRES_PER_S, 4),
            course=degrees(fields[8]),
            battery=percent(values.get("batt")),
            attributes=attributes,
        )
    )


def _angle(text: str, hemisphere: str, negative: str) -> float | None:
    """Return `dddmm.mmmm` as degrees."""
    found = _ANGLE.fullmatch(text)
    if found is None:
        return None
    angle = int(found[1]) + float(found[2]) / 60
    return round(-angle if hemisphere == negative else angle, 7)


def _time(clock: str, date: str) -> int:
    """Return `hhmmss` and `ddmmyy` in UTC as ms since 1970. Raises Unacceptable."""
    try:
        moment = datetime.strptime(f"{date} {clock.partition('.')[0]}", "%d%m%y %H%M%S")
    except ValueError as error:
        raise Unacceptable("the sentence has no date and time") from error
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)
