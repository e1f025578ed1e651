"""OpenGTS (as sent to PhoneTrack): one GPRMC sentence (NMEA 0183) in the URL or a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from gateway.formats import Context, Parsed
from gateway.formats.members import Members, add_member
from gateway.formats.parameters import query_and_body
from gateway.formats.values import (
    Unacceptable,
    build_event,
    build_fix,
    degrees,
    device_key,
    number,
    percent,
    positive,
    reject,
)

SOURCE: Final = "opengts"

_DEVICE: Final = ("dev", "id", "device")
_KNOT_METRES_PER_S: Final = 1852 / 3600
_CHECKSUM: Final = re.compile(r"[0-9A-Fa-f]{2}")
_ANGLE = re.compile(r"(\d{1,3})(\d\d(?:\.\d+)?)")


def parse(body: bytes, context: Context) -> Parsed:
    """Parse the fixes of URL and form; an event `status` if the receiver has no position (V)."""
    parsed = Parsed()
    raw = body
    try:
        items, raw = query_and_body(body, context, _place)
    except Unacceptable as reason:
        return reject(parsed, context, SOURCE, str(reason), raw)
    if not items:
        return Parsed(malformed="the request has no values: send gprmc=$GPRMC,...")
    for index, item in enumerate(items):
        try:
            _parse_item(Members(item, ("gprmc",)), context, parsed)
        except Unacceptable as reason:
            own = raw if len(items) == 1 else urlencode(item).encode()
            named = Members(item).peek(*_DEVICE)
            reject(parsed, context, SOURCE, str(reason), own, index, named=named)
    return parsed


def _place(values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if sentence := values.get("gprmc"):
        return (sentence, None)
    # Another format's coordinates are a message of their own, though not one for this parser.
    place = tuple(values.get(name) for name in ("lat", "lon"))
    return (place, None) if any(place) else None


def _parse_item(members: Members, context: Context, parsed: Parsed) -> None:
    device = device_key(context, members.device(context.device, *_DEVICE), SOURCE)
    fields = _fields(str(members.peek("gprmc") or ""))
    time = _time(fields[1], fields[9])
    if fields[2] != "A":
        attributes = _with_unread(members.others(), fields, 10)
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
            altitude=members.read(number, "alt"),
            speed=None if speed is None else round(speed * _KNOT_METRES_PER_S, 4),
            course=degrees(fields[8]),
            battery=members.read(percent, "batt"),
            attributes=_with_unread(members.others(), fields, 10),
        )
    )


def _fields(sentence: str) -> list[str]:
    """Return the fields of an RMC sentence. Raises Unacceptable, also for a wrong checksum."""
    characters, _, checksum = sentence.strip().partition("*")
    fields = characters.split(",")
    if len(fields) < 10 or not fields[0].endswith("RMC"):
        raise Unacceptable("gprmc is not an RMC sentence of NMEA 0183")
    checksum = checksum.strip()
    if checksum:  # many loggers send none
        calculated = 0
        for byte in characters.lstrip("$").encode():
            calculated ^= byte
        if not _CHECKSUM.fullmatch(checksum) or int(checksum, 16) != calculated:
            raise Unacceptable(
                f"gprmc has the checksum *{checksum[:8]}, but its characters give "
                f"*{calculated:02X}: the sentence was changed on its way"
            )
    return fields


def _with_unread(attributes: dict[str, Any], fields: list[str], known: int) -> dict[str, Any]:
    """Add the fields after the date (magnetic variation, mode), if there is anything in them."""
    more = fields[known:]
    if any(more):
        add_member(attributes, "gprmc_more", more)
    return attributes


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
