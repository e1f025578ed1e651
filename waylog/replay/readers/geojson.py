"""Reads GeoJSON (RFC 7946), as one collection or as a feature a line, and Overland's batches.

A point needs a time among its properties; a line needs `coordTimes` (or the `times` of
`coordinateProperties`), with one time for each of its points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from waylog.malformed import MALFORMED
from waylog.replay.readers.json import lines, mapping, not_read, number, objects, sequence
from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    attributes_of,
    charging_of,
    count_no_place,
    id_of,
    not_negative,
    on_earth,
    others_of,
    trigger_of,
)
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time
from waylog.track_elements import PLURALS

_TIME: Final = ("timestamp", "time", "tst", "datetime", "date", "fixTime", "recorded_at")
_DEVICE: Final = ("device_id", "device", "tid", "uid")
_ACCURACY: Final = ("horizontal_accuracy", "accuracy", "acc")
_ALTITUDE: Final = ("altitude", "alt", "ele")
_SPEED: Final = ("speed", "velocity")
_COURSE: Final = ("course", "bearing", "heading", "cog")
_BATTERY: Final = ("battery", "batt")
_NUMBERS: Final = (
    *(_ACCURACY, _ALTITUDE, _SPEED, _COURSE, _BATTERY),
    *(("vertical_accuracy",), ("battery_level",)),
)
_KNOWN: Final = frozenset(
    (
        *(*_TIME, *_DEVICE, *_ACCURACY, *_ALTITUDE, *_SPEED, *_COURSE, *_BATTERY),
        *("vertical_accuracy", "battery_level", "battery_state", "charging", "trigger", "id"),
        *("attributes", "geometry", "properties", "lat", "lon"),
    )
)
_LINE_TIMES: Final = ("coordTimes", "times", "coordinateProperties")
_SINGULARS: Final = {plural: singular for singular, plural in PLURALS.items()}


def read_collection(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of a FeatureCollection."""
    for feature in objects(source, "features.item"):
        yield from _feature(feature, skipped)


def read_overland(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of Overland's batches; also of `locations` with `lat`, `lon` and `time`."""
    for location in objects(source, "locations.item"):
        properties = mapping(location.get("properties"))
        if "action" in properties or properties.get("type") == "trip":
            skipped["not a fix"] += 1
        elif "geometry" in location:
            yield from _feature(location, skipped)
        else:
            yield from _point([location.get("lon"), location.get("lat")], location, skipped)


def read_lines(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes of features, one a line."""
    for line in lines(source):
        try:
            feature = msgspec.json.decode(line.lstrip(b"\x1e\xef\xbb\xbf"))
        except MALFORMED:
            skipped["not JSON"] += 1
            continue
        yield from _feature(mapping(feature), skipped)


def _feature(feature: dict[str, Any], skipped: Skipped) -> Iterator[RecordedFix]:
    geometry = mapping(feature.get("geometry"))
    properties = mapping(feature.get("properties"))
    coordinates = sequence(geometry.get("coordinates"))
    kind = geometry.get("type")
    if kind == "Point" and _first(properties, _TIME) is None and _line_times(properties):
        # A line of one point, as our own exports have it.
        yield from _line([coordinates], _line_times(properties), properties, skipped)
    elif kind == "Point":
        yield from _point(coordinates, properties, skipped)
    elif kind in ("LineString", "MultiPoint"):
        yield from _line(coordinates, _line_times(properties), properties, skipped)
    elif kind == "MultiLineString":
        times = _line_times(properties)
        for index, line in enumerate(coordinates):
            yield from _line(sequence(line), sequence(_at(times, index)), properties, skipped)
    else:
        skipped["not a point or line"] += 1


def _line_times(properties: dict[str, Any]) -> list[Any]:
    return sequence(properties.get("coordTimes")) or sequence(
        mapping(properties.get("coordinateProperties")).get("times")
    )


def _line(
    coordinates: list[Any], times: list[Any], properties: dict[str, Any], skipped: Skipped
) -> Iterator[RecordedFix]:
    """Yield the points of a line with what its properties say about each of them.

    Lists with a value for each point describe the points; all else describes the line, and is kept
    with its first point.
    """
    everything = properties | mapping(properties.get("coordinateProperties"))
    lists = {
        _SINGULARS.get(name, name): values
        for name, values in everything.items()
        if isinstance(values, list) and name not in _LINE_TIMES and len(values) == len(coordinates)
    }
    of_line = {
        name: value
        for name, value in everything.items()
        if name not in (*_DEVICE, *_LINE_TIMES) and _SINGULARS.get(name, name) not in lists
    }
    device = {name: properties[name] for name in _DEVICE if name in properties}
    for index, place in enumerate(coordinates):
        described = {name: values[index] for name, values in lists.items()}
        if index == 0:
            described = of_line | described
        for name in _TIME:
            described.pop(name, None)
        yield from _point(
            sequence(place), described | device | {"time": _at(times, index)}, skipped
        )


def _point(
    coordinates: list[Any], properties: dict[str, Any], skipped: Skipped
) -> Iterator[RecordedFix]:
    lon, lat = number(_at(coordinates, 0)), number(_at(coordinates, 1))
    if lat is None or lon is None or not on_earth(lat, lon):
        count_no_place(skipped, lat, lon)
        return
    try:
        time = parse_time(_first(properties, _TIME))
    except ValueError:
        skipped["no time"] += 1
        return
    device = _first(properties, _DEVICE)
    level = not_negative(number(properties.get("battery_level")))  # 0..1 in Overland
    altitude = number(_first(properties, _ALTITUDE))
    charging = charging_of(properties.get("charging"))
    yield RecordedFix(
        time=time,
        lat=lat,
        lon=lon,
        device=str(device) if isinstance(device, str | int) and device != "" else None,
        accuracy=not_negative(number(_first(properties, _ACCURACY))),
        altitude=altitude if altitude is not None else number(_at(coordinates, 2)),
        vertical_accuracy=not_negative(number(properties.get("vertical_accuracy"))),
        speed=not_negative(number(_first(properties, _SPEED))),
        course=not_negative(number(_first(properties, _COURSE))),
        battery=(
            not_negative(number(_first(properties, _BATTERY))) if level is None else level * 100
        ),
        charging=(
            _CHARGING.get(str(properties.get("battery_state"))) if charging is None else charging
        ),
        trigger=trigger_of(properties.get("trigger")),
        id=id_of(properties.get("id")),
        attributes=_attributes(properties),
    )


def _attributes(properties: dict[str, Any]) -> dict[str, Any] | None:
    own = attributes_of(properties.get("attributes"))
    left = not_read(properties, *_NUMBERS)
    if properties.get("battery_state") not in (None, *_CHARGING, "unknown"):
        left.add("battery_state")
    if charging_of(properties.get("charging")) is None:
        left.add("charging")
    others = others_of(properties, _KNOWN - left)
    return {**(others or {}), **own} if own else others


_CHARGING: Final = {"charging": True, "full": True, "unplugged": False}


def _first(properties: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((properties[name] for name in names if properties.get(name) is not None), None)


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None
