"""Reads Garmin's Training Center XML: the trackpoints that have a place.

What a trackpoint has beside the members of a fix (heart rate, cadence, watts) becomes attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from waylog.replay.readers.recorded import RecordedFix, Skipped, count_no_place, on_earth
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.replay.readers.xml import describe, elements, number

_KNOWN: Final = frozenset(
    ("Time", "LatitudeDegrees", "LongitudeDegrees", "AltitudeMeters", "Speed")
)
#: An element that holds the value of the one around it.
_VALUE: Final = "Value"


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the trackpoints, in the order of the file."""
    for element in elements(source, "Trackpoint"):
        fix = _fix(_members(element), skipped)
        if fix is not None:
            yield fix


def _members(point: Any) -> dict[str, str]:
    """Return the texts of the elements below by their local names; the first of a name wins."""
    members: dict[str, str] = {}
    for element in point.iter("{*}*"):
        text = element.text
        if element is point or not text or text.isspace():
            continue
        name = element.tag.rpartition("}")[2]
        if name == _VALUE:
            name = element.getparent().tag.rpartition("}")[2]
        members.setdefault(name, text.strip())
    return members


def _fix(members: dict[str, str], skipped: Skipped) -> RecordedFix | None:
    lat, lon = number(members.get("LatitudeDegrees")), number(members.get("LongitudeDegrees"))
    if lat is None or lon is None or not on_earth(lat, lon):
        count_no_place(skipped, lat, lon)
        return None
    try:
        time = parse_time(members.get("Time"))
    except ValueError:
        skipped["no time"] += 1
        return None
    fix = RecordedFix(time=time, lat=lat, lon=lon, altitude=number(members.get("AltitudeMeters")))
    others = {name: text for name, text in members.items() if name not in _KNOWN}
    describe(fix, {"speed": members["Speed"]} if "Speed" in members else {}, others)
    return fix
