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
    count_no_place,
    on_earth,
)
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.replay.readers.xml import describe, elements, number
from waylog.track_elements import NAMESPACE

_DEVICE: Final = f"{{{NAMESPACE}}}device"
_OWN: Final = ("vertical_accuracy", "battery", "charging", "trigger", "id", "attributes")
_DESCRIBED: Final = ("speed", "course", "accuracy")
_KNOWN: Final = ("time", "ele")
#: What some apps call the course.
_BEARING: Final = "bearing"


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
        count_no_place(skipped, lat, lon)
        return None
    try:
        time = parse_time(members.get("time"))
    except ValueError:
        skipped["no time"] += 1
        return None
    fix = RecordedFix(time=time, lat=lat, lon=lon, altitude=number(members.get("ele")))
    described = {
        name: text
        for name, text in members.items()
        if name in _DESCRIBED and number(text) is not None
    }
    if "course" not in described and number(members.get(_BEARING)) is not None:
        described["course"] = members.pop(_BEARING)
    read = (*_KNOWN, *described)
    others = {name: text for name, text in members.items() if name not in read}
    describe(fix, described | own, others)
    return fix
