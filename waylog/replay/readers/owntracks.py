"""Reads the OwnTracks Recorder's `.rec` files (time, tab, kind, tab, JSON) and bare JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from waylog.malformed import MALFORMED
from waylog.replay.readers.json import lines, mapping, not_read, number
from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    count_no_place,
    not_negative,
    on_earth,
    others_of,
    trigger_of,
)
from waylog.replay.readers.source import Source
from waylog.replay.readers.times import parse_time

_KMH = 3.6
_KNOWN: Final = frozenset(
    (
        *("_type", "_id", "lat", "lon", "tst", "acc", "alt", "vac", "vel", "cog", "batt", "bs"),
        *("t", "topic", "source", "qos", "retained", "modeId"),
    )
)
_NUMBERS: Final = tuple((name,) for name in ("acc", "alt", "vac", "vel", "cog", "batt", "bs"))
_CHARGING = {1: False, 2: True, 3: True}


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the messages of type `location`."""
    for line in lines(source):
        try:
            message = msgspec.json.decode(line[max(0, line.find(b"{")) :])
        except MALFORMED:
            skipped["not JSON"] += 1
            continue
        fix = _fix(mapping(message), skipped)
        if fix is not None:
            yield fix


def _fix(message: dict[str, Any], skipped: Skipped) -> RecordedFix | None:
    if message.get("_type") != "location":
        skipped["not a fix"] += 1
        return None
    lat, lon = number(message.get("lat")), number(message.get("lon"))
    if lat is None or lon is None or not on_earth(lat, lon):
        count_no_place(skipped, lat, lon)
        return None
    try:
        time = parse_time(message.get("tst"))
    except ValueError:
        skipped["no time"] += 1
        return None
    speed = not_negative(number(message.get("vel")))
    state = message.get("bs")
    return RecordedFix(
        time=time,
        lat=lat,
        lon=lon,
        device=_device(message),
        accuracy=not_negative(number(message.get("acc"))),
        altitude=number(message.get("alt")),
        vertical_accuracy=not_negative(number(message.get("vac"))),
        speed=None if speed is None else round(speed / _KMH, 3),
        course=not_negative(number(message.get("cog"))),
        battery=not_negative(number(message.get("batt"))),
        charging=_CHARGING.get(state) if isinstance(state, int) else None,
        trigger=trigger_of(message.get("t")),
        attributes=others_of(message, _KNOWN - not_read(message, *_NUMBERS)),
    )


def _device(message: dict[str, Any]) -> str | None:
    """Return the device's level of `owntracks/user/device`, else the tracker id."""
    topic = message.get("topic")
    levels = topic.split("/") if isinstance(topic, str) else []
    if len(levels) >= 3 and levels[2]:
        return str(levels[2])
    tracker = message.get("tid")
    return tracker if isinstance(tracker, str) and tracker else None
