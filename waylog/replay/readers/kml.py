"""Reads KML and KMZ: `gx:Track` (pairs of `when` and `gx:coord`) and placemarks with a time.

Lines without times do not say when a device was there; their points are counted as skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waylog.replay.readers.recorded import RecordedFix, Skipped, on_earth
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.replay.readers.xml import elements, number


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the points of tracks and placemarks."""
    for element in elements(source, "Track", "Placemark"):
        if element.tag.endswith("}Track"):
            yield from _track(element, skipped)
        else:
            yield from _placemark(element, skipped)


def _track(track: Any, skipped: Skipped) -> Iterator[RecordedFix]:
    # The standard allows pairs, and also all times before all coordinates.
    times = [element.text for element in track.iterfind("{*}when")]
    places = [(element.text or "").split() for element in track.iterfind("{*}coord")]
    skipped["no time"] += max(0, len(places) - len(times))
    for time, place in zip(times, places, strict=False):
        fix = _fix(time, place, skipped)
        if fix is not None:
            yield fix


def _placemark(placemark: Any, skipped: Skipped) -> Iterator[RecordedFix]:
    when = placemark.find("{*}TimeStamp/{*}when")
    if when is None:
        when = placemark.find("{*}TimeSpan/{*}begin")
    point = placemark.find("{*}Point/{*}coordinates")
    if point is not None:
        place = (point.text or "").strip().replace(",", " ").split()
        fix = _fix(None if when is None else when.text, place, skipped)
        if fix is not None:
            yield fix
    for line in placemark.iterfind(".//{*}LineString/{*}coordinates"):
        skipped["no time"] += len((line.text or "").split())


def _fix(time: str | None, place: list[str], skipped: Skipped) -> RecordedFix | None:
    lon, lat, altitude = (*(number(part) for part in place[:3]), None, None, None)[:3]
    if lat is None or lon is None or not on_earth(lat, lon):
        skipped["no coordinates"] += 1
        return None
    try:
        return RecordedFix(time=parse_time(time), lat=lat, lon=lon, altitude=altitude)
    except ValueError:
        skipped["no time"] += 1
        return None
