"""Reads Google's exports of a person's timeline, old and new.

A visit becomes two fixes, at its start and at its end; so does an activity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from waylog.replay.readers.json import mapping, number, objects, sequence
from waylog.replay.readers.recorded import RecordedFix, Skipped, not_negative, on_earth
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time

Place = tuple[float, float]

_E7_WRAP: Final = 2**32
_PAIR: Final = re.compile(r"(?:geo:)?\s*(-?\d+(?:\.\d+)?)\s*°?\s*,\s*(-?\d+(?:\.\d+)?)\s*°?")


def read_records(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of Records.json of the old Takeout."""
    for location in objects(source, "locations.item"):
        place = _e7(location.get("latitudeE7"), location.get("longitudeE7"))
        time = location.get("timestamp", location.get("timestampMs"))
        tag = location.get("deviceTag")
        fix = _fix(time, place, skipped)
        if fix is None:
            continue
        fix.device = str(tag) if isinstance(tag, int) else None
        fix.accuracy = not_negative(number(location.get("accuracy")))
        fix.altitude = number(location.get("altitude"))
        fix.vertical_accuracy = not_negative(number(location.get("verticalAccuracy")))
        fix.speed = not_negative(number(location.get("velocity")))
        fix.course = not_negative(number(location.get("heading")))
        charging = location.get("batteryCharging")
        fix.charging = charging if isinstance(charging, bool) else None
        yield fix


def read_semantic_history(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of a monthly file of Semantic Location History."""
    for each in objects(source, "timelineObjects.item"):
        visit, segment = mapping(each.get("placeVisit")), mapping(each.get("activitySegment"))
        duration = mapping((visit or segment).get("duration"))
        start = duration.get("startTimestamp", duration.get("startTimestampMs"))
        end = duration.get("endTimestamp", duration.get("endTimestampMs"))
        if visit:
            place = _e7_of(visit.get("location"))
            yield from _fixes([(start, place), (end, place)], skipped)
            continue
        # An activity without start or end location takes them from its way points.
        way = [
            _e7_of(point)
            for point in sequence(mapping(segment.get("waypointPath")).get("waypoints"))
        ]
        yield from _fixes(
            [
                (start, _e7_of(segment.get("startLocation")) or (way[0] if way else None)),
                *(
                    (
                        mapping(point).get("timestamp", mapping(point).get("timestampMs")),
                        _e7_of(point),
                    )
                    for point in sequence(mapping(segment.get("simplifiedRawPath")).get("points"))
                ),
                (end, _e7_of(segment.get("endLocation")) or (way[-1] if way else None)),
            ],
            skipped,
        )


def read_android(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of an Android phone's export: segments, and raw positions of recent weeks."""
    for segment in objects(source, "semanticSegments.item"):
        start, end = segment.get("startTime"), segment.get("endTime")
        yield from _fixes(
            [
                (mapping(point).get("time"), _pair(mapping(point).get("point")))
                for point in sequence(segment.get("timelinePath"))
            ],
            skipped,
        )
        if visit := mapping(segment.get("visit")):
            location = mapping(mapping(visit.get("topCandidate")).get("placeLocation"))
            place = _pair(location.get("latLng"))
            yield from _fixes([(start, place), (end, place)], skipped)
        if activity := mapping(segment.get("activity")):
            yield from _fixes(
                [
                    (start, _pair(mapping(activity.get("start")).get("latLng"))),
                    (end, _pair(mapping(activity.get("end")).get("latLng"))),
                ],
                skipped,
            )
    for signal in objects(source, "rawSignals.item"):
        position = mapping(signal.get("position"))
        if not position:
            continue
        fix = _fix(position.get("timestamp"), _pair(position.get("LatLng")), skipped)
        if fix is None:
            continue
        fix.accuracy = not_negative(number(position.get("accuracyMeters")))
        fix.altitude = number(position.get("altitudeMeters"))
        fix.speed = not_negative(number(position.get("speedMetersPerSecond")))
        yield fix


def read_ios(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of an iPhone's export, an array of segments."""
    for segment in objects(source, "item"):
        start, end = segment.get("startTime"), segment.get("endTime")
        if visit := mapping(segment.get("visit")):
            place = _pair(mapping(visit.get("topCandidate")).get("placeLocation"))
            yield from _fixes([(start, place), (end, place)], skipped)
        if activity := mapping(segment.get("activity")):
            yield from _fixes(
                [(start, _pair(activity.get("start"))), (end, _pair(activity.get("end")))], skipped
            )
        for point in sequence(segment.get("timelinePath")):
            minutes = number(mapping(point).get("durationMinutesOffsetFromStartTime"))
            fix = _fix(start, _pair(mapping(point).get("point")), skipped)
            if fix is not None:
                fix.time += round((minutes or 0.0) * 60_000)
                yield fix


def _fixes(points: list[tuple[Any, Place | None]], skipped: Skipped) -> Iterator[RecordedFix]:
    for time, place in points:
        fix = _fix(time, place, skipped)
        if fix is not None:
            yield fix


def _fix(time: Any, place: Place | None, skipped: Skipped) -> RecordedFix | None:
    if place is None or not on_earth(*place):
        skipped["no coordinates"] += 1
        return None
    try:
        return RecordedFix(time=parse_time(time), lat=place[0], lon=place[1])
    except ValueError:
        skipped["no time"] += 1
        return None


def _e7_of(location: object) -> Place | None:
    members = mapping(location)
    return _e7(
        members.get("latitudeE7", members.get("latE7")),
        members.get("longitudeE7", members.get("lngE7")),
    )


def _e7(lat: object, lon: object) -> Place | None:
    if not isinstance(lat, int) or not isinstance(lon, int):
        return None
    # Exports of some years have signed 32-bit integers that were read as unsigned.
    return (
        (lat - _E7_WRAP if lat > 900_000_000 else lat) / 1e7,
        (lon - _E7_WRAP if lon > 1_800_000_000 else lon) / 1e7,
    )


def _pair(text: object) -> Place | None:
    match = _PAIR.fullmatch(text.strip()) if isinstance(text, str) else None
    return None if match is None else (float(match.group(1)), float(match.group(2)))
