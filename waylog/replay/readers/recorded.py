"""The fixes that readers of recorded tracks yield."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from waylog.replay.readers.source import Source


class RecordedFix(msgspec.Struct, gc=False, array_like=True):
    """A fix as in the file. SI units, degrees WGS84, milliseconds since 1970-01-01 UTC."""

    time: int
    lat: float
    lon: float
    device: str | None = None  # as named in the file; None: the file is one device's track
    accuracy: float | None = None  # m
    altitude: float | None = None  # m
    vertical_accuracy: float | None = None  # m
    speed: float | None = None  # m/s
    course: float | None = None  # degrees from true north
    battery: float | None = None  # percent
    charging: bool | None = None


#: Counts, by reason, the entries of a file that are not sent.
Skipped = Counter[str]

Reader = Callable[[Source, Skipped], Iterator[RecordedFix]]


def on_earth(lat: float, lon: float) -> bool:
    """Return whether these are coordinates (False for NaN, too)."""
    return -90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0


def not_negative(value: float | None) -> float | None:
    """Replace NaN and negative numbers, which apps write for unknown values, by None."""
    return value if value is not None and value >= 0 else None
