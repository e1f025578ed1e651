"""Reads GPX 1.0 and 1.1: the points of tracks, routes and waypoints that have a time.

What a point has beside the members of a fix (heart rate, satellites, a waypoint's name) becomes its
attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    attributes_of,
    charging_of,
    id_of,
    not_negative,
    on_earth,
    others_of,
    trigger_of,
    typed,
)
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.replay.readers.xml import elements, number
from waylog.track_elements import NAMESPACE

_DEVICE: Final = f"{{{NAMESPACE}}}device"
_OWN: Final = ("vertical_accuracy", "battery", "charging", "trigger", "id", "attributes")
_KNOWN: Final = ("time", "ele", "speed", "course", "accuracy")


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield all points, in the order of the file."""
    device: str | None = None
    for element in elements(source, "trkpt", "rtept", "wpt", _DEVICE):
        if element.tag == _DEVICE:
            device = (element.text or "").strip() or None
            continue
        fix = _fix(element, skipped)
        if fix is not None:
            fix.device = device
            yield fix


def _fix(point: Any, skipped: Skipped) -> RecordedFix | None:
    members: dict[str, str] = {}
    own: dict[str, str] = {}
    # In any namespace, with those that 1.1 has under <extensions>; the first of a name wins.
    for element in point.iter("{*}*"):
        text = element.text
        if element is not point and text and not text.isspace():
            namespace, _, name = element.tag.rpartition("}")
            of = own if namespace == f"{{{NAMESPACE}" and name in _OWN else members
            of.setdefault(name, text.strip())
    lat, lon = number(point.get("lat")), number(point.get("lon"))
    if lat is None or lon is None or not on_earth(lat, lon):
        skipped["no coordinates"] += 1
        return None
    try:
        time = parse_time(members.get("time"))
    except ValueError:
        skipped["no time"] += 1
        return None
    others = {name: typed(text) for name, text in members.items() if name not in _KNOWN}
    return RecordedFix(
        time=time,
        lat=lat,
        lon=lon,
        altitude=number(members.get("ele")),
        speed=not_negative(number(members.get("speed"))),
        course=not_negative(number(members.get("course"))),
        accuracy=not_negative(number(members.get("accuracy"))),
        vertical_accuracy=not_negative(number(own.get("vertical_accuracy"))),
        battery=not_negative(number(own.get("battery"))),
        charging=charging_of(own.get("charging")),
        trigger=trigger_of(own.get("trigger")),
        id=id_of(own.get("id")),
        attributes=attributes_of(own.get("attributes")) or others_of(others, ()),
    )
