"""Positions of other platforms, as the JSON that `POST /v1/positions` takes.

Sources: Traccar's API reference (model Position: speed in knots, times in ISO 8601), Dawarich's
OpenAPI document (`/api/v1/points`: time in seconds, velocity in m/s as a text).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

_KNOT: Final = 1852 / 3600  # m/s

Record = dict[str, Any]


class NoPosition(ValueError):
    """A record that has no place or time; the message says what is missing."""


class Template(NamedTuple):
    """What the properties need not say for a platform."""

    offset_pointer: str
    key_pointer: str
    value: Callable[[Record], Record]


def traccar(record: Record) -> Record:
    """Return a position of Traccar; raises NoPosition."""
    attributes = record.get("attributes")
    more: Mapping[str, Any] = attributes if isinstance(attributes, dict) else {}
    speed = _number(record.get("speed"))
    time_ms, device = _milliseconds(record.get("fixTime")), str(record.get("deviceId"))
    return _known(
        # Several servers number their positions alike.
        id=f"traccar-{device}-{record.get('id')}-{time_ms}",
        device=device,
        lat=_needed(record, "latitude"),
        lon=_needed(record, "longitude"),
        time=time_ms,
        altitude=_number(record.get("altitude")),
        accuracy=_number(record.get("accuracy")) or None,  # 0 stands for unknown
        speed=None if speed is None else round(speed * _KNOT, 3),
        course=_number(record.get("course")),
        battery=_number(more.get("batteryLevel")),
        charging=more["charge"] if isinstance(more.get("charge"), bool) else None,
    )


def dawarich(record: Record) -> Record:
    """Return a point of Dawarich; raises NoPosition."""
    seconds = _number(record.get("timestamp"))
    if seconds is None:
        raise NoPosition("timestamp is missing")
    time_ms, device = round(seconds * 1000), str(record.get("tracker_id") or "dawarich")
    return _known(
        id=f"dawarich-{device}-{record.get('id')}-{time_ms}",
        device=device,
        lat=_needed(record, "latitude"),
        lon=_needed(record, "longitude"),
        time=time_ms,
        altitude=_number(record.get("altitude")),
        accuracy=_number(record.get("accuracy")),
        speed=_number(record.get("velocity")),
        battery=_number(record.get("battery")),
    )


TEMPLATES: Final = {
    "traccar": Template("/fixTime", "/deviceId", traccar),
    "dawarich": Template("/timestamp", "/tracker_id", dawarich),
}


def _known(**members: Any) -> Record:
    return {name: value for name, value in members.items() if value is not None}


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1e18 else None


def _needed(record: Record, name: str) -> float:
    value = _number(record.get(name))
    if value is None:
        raise NoPosition(f"{name} is missing")
    return value


def _milliseconds(value: Any) -> int:
    try:
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError, OSError):
        raise NoPosition("fixTime is no time") from None
