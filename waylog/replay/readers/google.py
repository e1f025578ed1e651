"""Reads Google's exports of a person's timeline, old and new.

A visit becomes two fixes, at its start and at its end; so does an activity. What an entry says
beside place and time (source of a position, kind of an activity, a place's id) becomes attributes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from waylog.replay.readers.json import mapping, number, objects, sequence
from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    count_no_place,
    not_negative,
    on_earth,
    others_of,
)
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time

Place = tuple[float, float]
#: Time, place, and what is said beside them.
Point = tuple[Any, Place | None, Mapping[str, Any]]

_PLACE_E7: Final = ("latitudeE7", "longitudeE7", "latE7", "lngE7")
_OF_RECORD: Final = (
    *("latitudeE7", "longitudeE7", "timestamp", "timestampMs", "accuracy", "altitude"),
    *("verticalAccuracy", "velocity", "heading"),
)
_OF_POSITION: Final = (
    *("LatLng", "timestamp", "accuracyMeters", "altitudeMeters", "speedMetersPerSecond"),
)
_OF_SEGMENT: Final = ("startTime", "endTime", "timelinePath", "visit", "activity")
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
        read = (*_OF_RECORD, "batteryCharging") if fix.charging is not None else _OF_RECORD
        fix.attributes = others_of(location, read)
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
            said = _said(visit, ("location", "duration"))
            said = _joined(_said(mapping(visit.get("location")), _PLACE_E7), said, "visit")
            yield from _fixes([(start, place, said), (end, place, said)], skipped)
            continue
        yield from _fixes(_of_activity(segment, start, end), skipped)


def _of_activity(segment: Mapping[str, Any], start: Any, end: Any) -> list[Point]:
    """Return the points of an `activitySegment`."""
    # An activity without start or end location takes them from its way points.
    way = [
        _e7_of(point) for point in sequence(mapping(segment.get("waypointPath")).get("waypoints"))
    ]
    raw_path = mapping(segment.get("simplifiedRawPath"))
    path = [mapping(point) for point in sequence(raw_path.get("points"))]
    of_path = ("startLocation", "endLocation", "duration", "simplifiedRawPath")
    said = _said(segment, (*of_path, "waypointPath"))
    first, last = mapping(segment.get("startLocation")), mapping(segment.get("endLocation"))
    # The way is long, and has no times: one of the fixes has it.
    of_first = _joined(said, _said(first, _PLACE_E7), "start") | _said(
        segment, segment.keys() - {"waypointPath"}
    )
    return [
        (start, _e7_of(first) or (way[0] if way else None), of_first),
        *(
            (
                point.get("timestamp", point.get("timestampMs")),
                _e7_of(point),
                _said(point, (*_PLACE_E7, "timestamp", "timestampMs"))
                | _said(segment, segment.keys() - {"activityType"}),
            )
            for point in path
        ),
        (
            end,
            _e7_of(last) or (way[-1] if way else None),
            _joined(said, _said(last, _PLACE_E7), "end"),
        ),
    ]


def read_android(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of an Android phone's export: segments, and raw positions of recent weeks."""
    for segment in objects(source, "semanticSegments.item"):
        points = map(mapping, sequence(segment.get("timelinePath")))
        yield from _fixes(
            [
                (point.get("time"), _pair(point.get("point")), _said(point, ("time", "point")))
                for point in points
            ],
            skipped,
        )
        yield from _of_segment(segment, "latLng", skipped)
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
        fix.attributes = others_of(position, _OF_POSITION)
        yield fix


def read_ios(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of an iPhone's export, an array of segments."""
    for segment in objects(source, "item"):
        yield from _of_segment(segment, None, skipped)
        for each in sequence(segment.get("timelinePath")):
            point = mapping(each)
            minutes = number(point.get("durationMinutesOffsetFromStartTime"))
            fix = _fix(segment.get("startTime"), _pair(point.get("point")), skipped)
            if fix is not None:
                fix.time += round((minutes or 0.0) * 60_000)
                fix.attributes = others_of(point, ("point", "durationMinutesOffsetFromStartTime"))
                yield fix


def _of_segment(
    segment: Mapping[str, Any], member: str | None, skipped: Skipped
) -> Iterator[RecordedFix]:
    """Yield the fixes of a segment's visit and activity.

    A place is a text, or an object with the text as this `member`.
    """
    start, end = segment.get("startTime"), segment.get("endTime")
    of_segment = _said(segment, _OF_SEGMENT)

    def place_of(value: object) -> tuple[Place | None, dict[str, Any]]:
        if member is None:
            return _pair(value), {}
        return _pair(mapping(value).get(member)), _said(mapping(value), (member,))

    if visit := mapping(segment.get("visit")):
        candidate = mapping(visit.get("topCandidate"))
        place, of_place = place_of(candidate.get("placeLocation"))
        said = _joined(_said(visit, ("topCandidate",)), of_segment, "segment")
        said = _joined(said, _said(candidate, ("placeLocation",)), "topCandidate")
        said = _joined(said, of_place, "placeLocation")
        yield from _fixes([(start, place, said), (end, place, said)], skipped)
    if activity := mapping(segment.get("activity")):
        candidate = mapping(activity.get("topCandidate"))
        said = _joined(_said(activity, ("topCandidate", "start", "end")), of_segment, "segment")
        said = _joined(said, _said(candidate, ()), "topCandidate")
        ends: list[Point] = []
        for time, name in ((start, "start"), (end, "end")):
            place, of_place = place_of(activity.get(name))
            ends.append((time, place, _joined(said, of_place, name)))
        yield from _fixes(ends, skipped)


def _said(members: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in known}


def _joined(one: dict[str, Any], more: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the members of both; those of `more` that `one` has, too, get `name` before them."""
    return one | {f"{name}_{each}" if each in one else each: more[each] for each in more}


def _fixes(points: list[Point], skipped: Skipped) -> Iterator[RecordedFix]:
    for time, place, said in points:
        fix = _fix(time, place, skipped)
        if fix is not None:
            fix.attributes = others_of(said, ())
            yield fix


def _fix(time: Any, place: Place | None, skipped: Skipped) -> RecordedFix | None:
    if place is None or not on_earth(*place):
        count_no_place(skipped, *(place or (None, None)))
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
