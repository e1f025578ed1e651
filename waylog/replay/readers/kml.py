"""Reads KML and KMZ: `gx:Track` (pairs of `when` and `gx:coord`) and placemarks with a time.

The arrays of a track's SchemaData, and the data of a placemark, describe their fixes. Lines without
times do not say when a device was there; their points are counted as skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    count_no_place,
    on_earth,
)
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.replay.readers.xml import describe, elements, number
from waylog.track_elements import PLURALS


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
    skipped["no coordinates"] += max(0, len(times) - len(places))
    device = _data(track).get("device")
    arrays = {
        array.get("name") or "": [value.text for value in array.iterfind("{*}value")]
        for array in track.iterfind(".//{*}SimpleArrayData")
    }
    for index, (time, place) in enumerate(zip(times, places, strict=False)):
        fix = _fix(time, place, skipped)
        if fix is not None:
            fix.device = device
            values = {
                name: of_points[index].strip()
                for name, of_points in arrays.items()
                if index < len(of_points) and of_points[index]
            }
            describe(fix, values, _others(values))
            yield fix


def _data(element: Any) -> dict[str, str]:
    """Return the named values of an element's ExtendedData."""
    return {
        data.get("name"): text.strip()
        for data in element.iterfind("{*}ExtendedData/{*}Data")
        if data.get("name") and (text := data.findtext("{*}value"))
    }


def _others(values: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in values.items() if name not in PLURALS}


def _placemark(placemark: Any, skipped: Skipped) -> Iterator[RecordedFix]:
    when = placemark.find("{*}TimeStamp/{*}when")
    if when is None:
        when = placemark.find("{*}TimeSpan/{*}begin")
    point = placemark.find("{*}Point/{*}coordinates")
    if point is not None:
        place = (point.text or "").strip().replace(",", " ").split()
        fix = _fix(None if when is None else when.text, place, skipped)
        if fix is not None:
            values = _data(placemark)
            values |= {
                name: text.strip()
                for name in ("name", "description")
                if (text := placemark.findtext(f"{{*}}{name}"))
            }
            fix.device = values.pop("device", None)
            describe(fix, values, _others(values))
            yield fix
    for line in placemark.iterfind(".//{*}LineString/{*}coordinates"):
        skipped["no time"] += len((line.text or "").split())


def _fix(time: str | None, place: list[str], skipped: Skipped) -> RecordedFix | None:
    lon, lat, altitude = (*(number(part) for part in place[:3]), None, None, None)[:3]
    if lat is None or lon is None or not on_earth(lat, lon):
        count_no_place(skipped, lat, lon)
        return None
    try:
        return RecordedFix(time=parse_time(time), lat=lat, lon=lon, altitude=altitude)
    except ValueError:
        skipped["no time"] += 1
        return None
