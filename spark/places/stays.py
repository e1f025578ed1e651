"""Stays of one device as arrays, and the joining of stays that were split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import METRES_PER_DEGREE, Fixes, to_degrees
from spark.places.stay_points import StayFinder

#: Metres within which stays are linked.
LINK_M: Final = 100.0

#: Stays this close in time (ms) and in space (m) are one stay that was split.
JOIN_M: Final = 150.0
JOIN_MS: Final = 5 * 60_000

#: Milliseconds between two stays at one place up to which they are one visit.
MERGE_MS: Final = 30 * 60_000


@dataclass(frozen=True)
class Stays:
    """Stays of one device, ascending by time."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    silent: NDArray[np.int64]
    fixes: NDArray[np.int64]

    @classmethod
    def of(cls, found: NDArray[Any]) -> Stays:
        """Convert rows of STAY_TYPE."""
        return cls(
            found["start"].copy(),
            found["end"].copy(),
            to_degrees(found["lat"]),
            to_degrees(found["lon"]),
            found["silent"].copy(),
            found["fixes"].copy(),
        )


def stays_of(fixes: Fixes) -> Stays:
    """Return the stays in fixes that are ascending by time; the last one may be unfinished."""
    finder = StayFinder()
    finder.feed(*fixes)
    return Stays.of(finder.take_open())


def join_stays(stays: Stays) -> Stays:
    """Join stays that a badly measured fix has split.

    They follow each other with a short pause or none, and their centres are close.
    """
    joined: list[list[float]] = []
    rows = zip(
        stays.start.tolist(),
        stays.end.tolist(),
        stays.lat.tolist(),
        stays.lon.tolist(),
        stays.silent.tolist(),
        stays.fixes.tolist(),
        strict=True,
    )
    for start, end, lat, lon, silent, fixes in rows:
        if joined:
            last = joined[-1]
            pause = start - last[1]
            reach = JOIN_M if pause <= JOIN_MS else LINK_M
            if pause <= MERGE_MS:
                east = (lon - last[3] + 180) % 360 - 180
                width = east * math.cos(math.radians(lat))
                if math.hypot(lat - last[2], width) * METRES_PER_DEGREE <= reach:
                    share = fixes / (last[5] + fixes)
                    last[1] = end
                    last[2] += share * (lat - last[2])
                    last[3] = (last[3] + share * east + 180) % 360 - 180
                    last[4] += silent
                    last[5] += fixes
                    continue
        joined.append([start, end, lat, lon, silent, fixes])
    columns = np.ascontiguousarray(np.array(joined, np.float64).T)
    whole = columns[[0, 1, 4, 5]].astype(np.int64)
    return Stays(whole[0], whole[1], columns[2], columns[3], whole[2], whole[3])
