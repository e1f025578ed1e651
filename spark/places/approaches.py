"""Places that are only where a device was last seen on the way to another one.

A phone that reports after a significant change of position may tell its last fix some hundred
metres before the door, and nothing until it has left again. From each side that is another spot, so
that one place becomes several. Such a spot is taken for the place next to it, unless the device
went from one to the other after a while: then they are two.

Where a phone reports at the door, two spots are two places. Which phone it is shows in the spots
themselves: places are visited again, and a phone that is at the door is near the same point each
time, while last fixes on the way lie anywhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import distances_m
from spark.places.clusters import centres_of
from spark.places.reporting import silent_when_still
from spark.places.stays import Stays
from waylog import great_circle

#: Metres within which the last fix on the way to a place may be.
APPROACH_M: Final = 350.0

# Of a stay without a fix inside there is one on the way, or two at the same spot of it.
_GLIMPSED_FIXES: Final = 2
# A place is only glimpsed if this share of its stays is.
_GLIMPSED_SHARE: Final = 0.9
# Two places are two if the device went straight from one to the other for this share of the visits
# to one of them. It was on its way, and is inside now, if that was within this time (ms).
_WENT_SHARE: Final = 0.2
_ARRIVING_MS: Final = 35 * 60_000
# The place of several spots is where stays are nearest to the same point: a stay counts half at
# this distance from it (m), and as much if it is the only one.
_EXACT_M: Final = 20.0
# A phone reports before the door if so many stays, and this share of those that it gives with a fix
# or two, are next to a place and alone there: not within this distance (m) of others.
_ALONE_M: Final = 50.0
_ALONE_MIN: Final = 3
_ALONE_SHARE: Final = 0.04


def without_approaches(
    stays: Stays, number: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each stay's place without approaches, and the stays at the places.

    The others were seen on the way. Numbers are in the order of the places' first stays.
    """
    everything = np.arange(len(number), dtype=np.int64)
    glimpsed = silent_when_still(stays) & (stays.fixes <= _GLIMPSED_FIXES)
    if glimpsed.sum() < _ALONE_MIN:
        return number, everything
    count = int(number.max()) + 1
    lats, lons = centres_of(stays, number, count)
    visits = np.bincount(number, minlength=count)
    away = distances_m(lats[number], lons[number], stays.lat, stays.lon)
    owner = _owners(stays, number, glimpsed, lats, lons, away)
    gone = owner[number] != number
    alone = gone & ((visits[number] == 1) | (away > _ALONE_M))
    if alone.sum() < max(_ALONE_MIN, _ALONE_SHARE * float(glimpsed.sum())):
        return number, everything
    kept, first, result = np.unique(owner[number], return_index=True, return_inverse=True)
    rank = np.empty(len(kept), np.int64)
    rank[np.argsort(first)] = np.arange(len(kept))
    return rank[result], np.flatnonzero(~gone)


def _owners(
    stays: Stays,
    number: NDArray[np.int64],
    glimpsed: NDArray[np.bool_],
    lats: NDArray[np.float64],
    lons: NDArray[np.float64],
    away: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Return the place that each place is, or may be on the way to."""
    visits = np.bincount(number, minlength=len(lats))
    only_glimpsed = np.bincount(number, glimpsed, len(lats)) >= _GLIMPSED_SHARE * visits
    straight = (stays.after[:-1] >= stays.first[1:]) & (number[1:] != number[:-1])
    arriving = (stays.end - stays.start)[:-1] <= _ARRIVING_MS
    went: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for row in np.flatnonzero(straight & ~arriving).tolist():
        one, other = int(number[row]), int(number[row + 1])
        went[one][other] += 1
        went[other][one] += 1
    step = great_circle.distances_m(stays.lat[:-1], stays.lon[:-1], stays.lat[1:], stays.lon[1:])
    passed = np.append(straight & arriving & (step <= APPROACH_M), False)
    exact = _exactness(number, visits, away, passed)
    dwell = np.bincount(number, stays.end - stays.start, len(lats))
    owner = np.arange(len(lats))
    kept: list[int] = []
    for place in np.lexsort((-dwell, -exact)).tolist():
        if only_glimpsed[place] and kept:
            metres = distances_m(lats[place], lons[place], lats[kept], lons[kept])
            for index in np.argsort(metres, kind="stable").tolist():
                if metres[index] > APPROACH_M:
                    break
                if went[place][kept[index]] <= _WENT_SHARE * visits[place]:
                    owner[place] = kept[index]
                    break
        if owner[place] == place:
            kept.append(place)
        else:
            _count_as(went, place, int(owner[place]))
    return owner


def _exactness(
    number: NDArray[np.int64],
    visits: NDArray[np.int64],
    away: NDArray[np.float64],
    passed: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return for each place by how many stays its point is known, without those that `passed`."""
    size = visits[number]
    # Of few stays the centre is near each.
    apart = np.where(size > 1, away * np.sqrt(size / np.maximum(size - 1, 1)), _EXACT_M)
    exact = np.where(passed, 0.0, 1 / (1 + (apart / _EXACT_M) ** 2))
    return np.bincount(number, exact, len(visits)).astype(np.float64)


def _count_as(went: defaultdict[int, Counter[int]], place: int, owner: int) -> None:
    """Count the ways from and to a place as those of its owner."""
    for other, ways in went[place].items():
        if other != owner:
            went[owner][other] += ways
            went[other][owner] += ways
