"""Stays of one device as arrays, and the joining of stays that were split."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import METRES_PER_DEGREE, Fixes, to_degrees
from spark.places.stay_points import STAY_TYPE, StayFinder
from waylog import great_circle

#: Metres within which stays are linked.
LINK_M: Final = 100.0

#: Stays this close in time (ms) and in space (m) are one stay that was split.
JOIN_M: Final = 150.0
JOIN_MS: Final = 5 * 60_000

#: Milliseconds between two stays at one place up to which they are one visit.
MERGE_MS: Final = 30 * 60_000

_ABSENT: Final = np.empty(0, np.int64)
_NOWHERE: Final = np.empty(0, np.float64)


@dataclass(frozen=True)
class Stays:
    """Stays of one device, ascending by time; times in ms, positions in degrees.

    What is known of the silences around them is as in STAY_TYPE; by default there were none.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    silent: NDArray[np.int64]
    fixes: NDArray[np.int64]
    first: NDArray[np.int64] = field(default_factory=lambda: _ABSENT)
    seen: NDArray[np.int64] = field(default_factory=lambda: _ABSENT)
    quiet: NDArray[np.int64] = field(default_factory=lambda: _ABSENT)
    longest: NDArray[np.int64] = field(default_factory=lambda: _ABSENT)
    before: NDArray[np.int64] = field(default_factory=lambda: _ABSENT)
    before_lat: NDArray[np.float64] = field(default_factory=lambda: _NOWHERE)
    before_lon: NDArray[np.float64] = field(default_factory=lambda: _NOWHERE)
    after: NDArray[np.int64] = field(default_factory=lambda: _ABSENT)
    after_lat: NDArray[np.float64] = field(default_factory=lambda: _NOWHERE)
    after_lon: NDArray[np.float64] = field(default_factory=lambda: _NOWHERE)

    def __post_init__(self) -> None:
        for name, values in (
            ("first", self.start),
            ("seen", self.end),
            ("quiet", self.silent),
            ("longest", self.silent),
            ("before", self.start),
            ("before_lat", self.lat),
            ("before_lon", self.lon),
            ("after", self.end),
            ("after_lat", self.lat),
            ("after_lon", self.lon),
        ):
            if getattr(self, name) is _ABSENT or getattr(self, name) is _NOWHERE:
                object.__setattr__(self, name, values)

    @classmethod
    def of(cls, found: NDArray[Any]) -> Stays:
        """Convert rows of STAY_TYPE."""
        time = {name: found[name].copy() for name in STAY_TYPE.names or ()}
        return cls(
            start=time["start"],
            end=time["end"],
            lat=to_degrees(found["lat"]),
            lon=to_degrees(found["lon"]),
            silent=time["silent"],
            fixes=time["fixes"],
            first=time["first"],
            seen=time["seen"],
            quiet=time["quiet"],
            longest=time["longest"],
            before=time["before"],
            before_lat=to_degrees(found["before_lat"]),
            before_lon=to_degrees(found["before_lon"]),
            after=time["after"],
            after_lat=to_degrees(found["after_lat"]),
            after_lon=to_degrees(found["after_lon"]),
        )

    @property
    def came_m(self) -> NDArray[np.float64]:
        """Metres from the fix before to each stay."""
        return _way_m(self, self.before > self.first - 1, self.before_lat, self.before_lon)

    @property
    def went_m(self) -> NDArray[np.float64]:
        """Metres from each stay to the fix after it."""
        return _way_m(self, self.after < self.seen + 1, self.after_lat, self.after_lon)

    def take(self, rows: NDArray[np.int64]) -> Stays:
        """Return the selected stays."""
        return Stays(*(getattr(self, each.name)[rows] for each in fields(self)))


def _way_m(
    stays: Stays,
    absent: NDArray[np.bool_],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
) -> NDArray[np.float64]:
    return np.where(absent, 0.0, great_circle.distances_m(stays.lat, stays.lon, lat, lon))


def stays_of(fixes: Fixes) -> Stays:
    """Return the stays in fixes that are ascending by time; the last one may be unfinished."""
    finder = StayFinder()
    finder.feed(*fixes)
    return Stays.of(finder.take_open())


def join_stays(stays: Stays) -> Stays:
    """Join stays that a badly measured fix has split.

    They follow each other with a short pause or none, and their centres are close.
    """
    starts, ends = stays.start.tolist(), stays.end.tolist()
    lats, lons, counts = stays.lat.tolist(), stays.lon.tolist(), stays.fixes.tolist()
    first: list[int] = []
    last: list[int] = []
    centres: list[tuple[float, float]] = []
    total = 0
    for row, (start, lat, lon, fixes) in enumerate(zip(starts, lats, lons, counts, strict=True)):
        if first:
            pause = start - ends[row - 1]
            if pause <= MERGE_MS:
                known_lat, known_lon = centres[-1]
                east = (lon - known_lon + 180) % 360 - 180
                width = east * math.cos(math.radians(lat))
                reach = JOIN_M if pause <= JOIN_MS else LINK_M
                if math.hypot(lat - known_lat, width) * METRES_PER_DEGREE <= reach:
                    total += fixes
                    share = fixes / total
                    centres[-1] = (
                        known_lat + share * (lat - known_lat),
                        (known_lon + share * east + 180) % 360 - 180,
                    )
                    last[-1] = row
                    continue
        first.append(row)
        last.append(row)
        centres.append((lat, lon))
        total = fixes
    return _joined(stays, np.array(first), np.array(last), np.array(centres))


def _joined(
    stays: Stays, first: NDArray[np.int64], last: NDArray[np.int64], centres: NDArray[np.float64]
) -> Stays:
    return Stays(
        start=stays.start[first],
        end=stays.end[last],
        lat=np.ascontiguousarray(centres[:, 0]),
        lon=np.ascontiguousarray(centres[:, 1]),
        silent=np.add.reduceat(stays.silent, first),
        fixes=np.add.reduceat(stays.fixes, first),
        first=stays.first[first],
        seen=stays.seen[last],
        quiet=np.add.reduceat(stays.quiet, first),
        longest=np.maximum.reduceat(stays.longest, first),
        before=stays.before[first],
        before_lat=stays.before_lat[first],
        before_lon=stays.before_lon[first],
        after=stays.after[last],
        after_lat=stays.after_lat[last],
        after_lon=stays.after_lon[last],
    )
