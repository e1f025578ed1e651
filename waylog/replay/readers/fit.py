"""Reads FIT, the binary files of Garmin's and others' watches and bicycle computers.

Fixes are messages of type `record`. Without a place, as indoors, they are counted as skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from waylog.replay.readers.json import number
from waylog.replay.readers.recorded import (
    RecordedFix,
    Skipped,
    count_no_place,
    not_negative,
    on_earth,
    others_of,
)
from waylog.replay.readers.source import Source, UnreadableTrack
from waylog.replay.readers.times import parse_time

#: Degrees of a semicircle: positions are fractions of half a turn.
_DEGREES: Final = 180 / 2**31
_MESSAGE: Final = "record"
_KNOWN: Final = frozenset(
    (
        *("timestamp", "position_lat", "position_long", "altitude", "enhanced_altitude"),
        *("speed", "enhanced_speed", "gps_accuracy"),
    )
)
#: Fields of a maker's own, of which nobody else knows what they are.
_UNNAMED: Final = "unknown_"
_HEADER_BYTES: Final = (12, 14)


def is_fit(head: bytes) -> bool:
    """Tell whether a file that begins like this is a FIT file."""
    return head[:1] in {bytes((size,)) for size in _HEADER_BYTES} and head[8:12] == b".FIT"


def read(source: Source, skipped: Skipped) -> Iterator[RecordedFix]:
    """Yield the fixes, in the order of the file; raises UnreadableTrack."""
    import fitdecode

    with source.open() as stream:
        try:
            with fitdecode.FitReader(
                stream,
                check_crc=fitdecode.CrcCheck.DISABLED,
                # A field that is not as its definition says is left out.
                error_handling=fitdecode.ErrorHandling.IGNORE,
            ) as frames:
                for frame in frames:
                    if isinstance(frame, fitdecode.FitDataMessage) and frame.name == _MESSAGE:
                        fix = _fix({field.name: field.value for field in frame.fields}, skipped)
                        if fix is not None:
                            yield fix
        except (fitdecode.FitError, ValueError, LookupError, TypeError, ArithmeticError,
                AttributeError, AssertionError, struct.error) as error:  # fmt: skip
            # The library lets some damage show itself as errors of Python.
            raise UnreadableTrack(f"{source}: not a FIT file, or damaged: {error}") from error


def _fix(values: dict[str, Any], skipped: Skipped) -> RecordedFix | None:
    lat, lon = number(values.get("position_lat")), number(values.get("position_long"))
    if lat is None or lon is None or not on_earth(lat * _DEGREES, lon * _DEGREES):
        count_no_place(skipped, lat and lat * _DEGREES, lon and lon * _DEGREES)
        return None
    moment = values.get("timestamp")
    try:
        time = parse_time(moment.isoformat() if isinstance(moment, datetime) else None)
    except ValueError:
        skipped["no time"] += 1
        return None
    altitude = _first(values, "enhanced_altitude", "altitude")
    return RecordedFix(
        time=time,
        lat=round(lat * _DEGREES, 7),
        lon=round(lon * _DEGREES, 7),
        altitude=None if altitude is None else round(altitude, 2),
        accuracy=not_negative(number(values.get("gps_accuracy"))),
        speed=not_negative(_first(values, "enhanced_speed", "speed")),
        attributes=others_of(
            {
                name: value
                for name, value in values.items()
                if isinstance(value, int | float | str) and not name.startswith(_UNNAMED)
            },
            _KNOWN,
        ),
    )


def _first(values: dict[str, Any], *names: str) -> float | None:
    return next((found for name in names if (found := number(values.get(name))) is not None), None)
