"""Reads GPX 1.0 and 1.1: the track points that have a time.

Waypoints and routes are left out, since they do not say where a device was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waylog.replay.readers.recorded import RecordedFix, Skipped, not_negative, on_earth
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.replay.readers.xml import elements, number


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the points of all tracks and segments, in the order of the file."""
    for point in elements(source, "trkpt"):
        fix = _fix(point, skipped)
        if fix is not None:
            yield fix


def _fix(point: Any, skipped: Skipped) -> RecordedFix | None:
    members: dict[str, str] = {}
    # In any namespace, with those that 1.1 has under <extensions>; the first of a name wins.
    for element in point.iter("{*}*"):
        text = element.text
        if text and not text.isspace():
            members.setdefault(element.tag.rpartition("}")[2], text.strip())
    lat, lon = number(point.get("lat")), number(point.get("lon"))
    if lat is None or lon is None or not on_earth(lat, lon):
        skipped["no coordinates"] += 1
        return None
    try:
        time = parse_time(members.get("time"))
    except ValueError:
        skipped["no time"] += 1
        return None
    return RecordedFix(
        time=time,
        lat=lat,
        lon=lon,
        altitude=number(members.get("ele")),
        speed=not_negative(number(members.get("speed"))),
        course=not_negative(number(members.get("course"))),
        accuracy=not_negative(number(members.get("accuracy"))),
    )
