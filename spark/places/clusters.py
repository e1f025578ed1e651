"""The clustering of a device's stays into places, and the centres of these.

Stays within reach of each other are linked. Chains that are too long for one place are split. Then
places are merged if the device's own measurement error explains the distance between them.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import METRES_PER_DEGREE, distances_m
from spark.places.stay_points import link_places
from spark.places.stays import LINK_M, Stays

#: Metres of extent above which a chain of linked stays may be several places; linking has no limit.
SPREAD_MAX_M: Final = 120.0

#: Metres below which two centres are the same place.
SAME_M: Final = 75.0

_REFINEMENTS: Final = 8

#: Metres above which two places are never merged, however inaccurate a device is.
UNITE_MAX_M: Final = 200.0

#: Metres of width that a place does not exceed by merging.
WIDTH_MAX_M: Final = 300.0

# Errors of consecutive fixes are correlated: this many fixes, or this much time (ms), count as one
# more independent observation.
_LOOK_FIXES: Final = 10
_LOOK_MS: Final = 10 * 60_000

# Two places are merged if their squared distance, in units of its standard error, is below this.
# Chance alone exceeds it once in three million cases (chi-square, two degrees of freedom). Errors
# are not quite normal and observations not quite independent, so common limits (14) would split one
# place in two.
_SAME_CHI_SQUARE: Final = 30.0
_UNITE_ROUNDS: Final = 2

# The error of one observation (m, each axis): the default for a device with too little data, and
# bounds.
_ERROR_M: Final = 20.0
_ERROR_MIN_M: Final = 5.0
_ERROR_MAX_M: Final = 60.0
_ERROR_STAYS_MIN: Final = 6
_ERROR_PLACE_STAYS_MIN: Final = 3
# The median of the sum of two squared normal variables of unit variance.
_MEDIAN_OF_CHI_SQUARE: Final = 2 * math.log(2)

# Metres from the median of its place beyond which a stay does not count for the centre.
_STRAY_M: Final = 250.0


def cluster(stays: Stays) -> NDArray[np.int64]:
    """Return the number of each stay's place, in the order of the places' first stays."""
    linked = link_places(stays.lat, stays.lon, LINK_M)
    result = np.empty(len(linked), np.int64)
    next_number = 0
    for members in _groups(linked):
        for part in _split(stays, members):
            result[part] = next_number
            next_number += 1
    looks = looks_of(stays)
    for _ in range(_UNITE_ROUNDS):
        # After merging, the device's error is estimated better than before.
        result = _unite(stays, looks, result)
    first = np.unique(result, return_index=True)[1]
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[result]


def looks_of(stays: Stays) -> NDArray[np.float64]:
    """Return the number of independent observations that each stay counts as, at least 1."""
    seen = np.maximum(stays.end - stays.start - stays.silent, 0)
    result: NDArray[np.float64] = 1 + np.minimum(stays.fixes / _LOOK_FIXES, seen / _LOOK_MS)
    return result


def _groups(number: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the members of each number."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(number[order])) + 1)


class _Plane(NamedTuple):
    """Points in metres around the first of them."""

    north: NDArray[np.float64]
    east: NDArray[np.float64]

    @classmethod
    def of(cls, stays: Stays, members: NDArray[np.int64]) -> _Plane:
        lat, lon = stays.lat[members], stays.lon[members]
        east = (lon - lon[0] + 180) % 360 - 180
        return cls(
            (lat - lat[0]) * METRES_PER_DEGREE,
            east * (METRES_PER_DEGREE * np.cos(np.radians(lat[0]))),
        )

    def means(self, number: NDArray[np.int64], weight: NDArray[np.float64]) -> _Plane:
        total = np.bincount(number, weight)
        return _Plane(*(np.bincount(number, weight * axis) / total for axis in self))

    def squares_to(self, other: _Plane) -> NDArray[np.float64]:
        """Return squared distances: rows are points of this plane, columns those of `other`."""
        north = self.north[:, None] - other.north[None, :]
        east = self.east[:, None] - other.east[None, :]
        result: NDArray[np.float64] = north * north + east * east
        return result


def _split(stays: Stays, members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split a chain of stays if it spans several places near each other."""
    if len(members) == 1:
        return [members]
    plane = _Plane.of(stays, members)
    if np.hypot(np.ptp(plane.north), np.ptp(plane.east)) <= SPREAD_MAX_M:
        return [members]
    weight = stays.fixes[members].astype(np.float64)
    # The stay with the most fixes is the first place; further places are at stays that are too far
    # from all places chosen before.
    chosen: list[int] = []
    nearest = np.full(len(members), np.inf)
    order = np.argsort(-weight, kind="stable")
    for index in order.tolist():
        if nearest[index] > LINK_M:
            chosen.append(index)
            away = np.hypot(plane.north - plane.north[index], plane.east - plane.east[index])
            nearest = np.minimum(nearest, away)
    centres = _Plane(plane.north[chosen], plane.east[chosen])
    for _ in range(_REFINEMENTS):
        owner = np.unique(np.argmin(plane.squares_to(centres), axis=1), return_inverse=True)[1]
        total = np.bincount(owner, weight)
        centres = plane.means(owner, weight)
        close = np.argwhere(np.triu(centres.squares_to(centres) < SAME_M * SAME_M, 1))
        if len(close):
            # Two centres that came together are one place: remove the one with fewer fixes.
            one, other = close[0]
            gone = one if total[one] < total[other] else other
            centres = _Plane(*(np.delete(axis, gone) for axis in centres))
    owner = np.argmin(plane.squares_to(centres), axis=1)
    return [members[part] for part in _groups(owner)]


def _unite(
    stays: Stays, looks: NDArray[np.float64], number: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Merge places that the device's error cannot tell apart.

    Each stay then belongs to the nearest of the remaining places.
    """
    error = _error_m(stays, looks, number)
    lat, lon = _means(stays, looks, number)
    # Numbers start at 0 and have no gaps.
    near = link_places(lat, lon, UNITE_MAX_M)[number]
    result = number.copy()
    for members in _groups(near):
        own, local = np.unique(number[members], return_inverse=True)
        if len(own) == 1:
            continue
        plane, weight = _Plane.of(stays, members), looks[members]
        local = _agglomerate(plane, local, weight, error)[local]
        local = np.unique(local, return_inverse=True)[1]
        nearest = np.argmin(plane.squares_to(plane.means(local, weight)), axis=1)
        alone = np.bincount(local)[local] == 1
        # Numbers of this group are only used within it.
        result[members] = own[np.where(alone, local, nearest)]
    return np.unique(result, return_inverse=True)[1].astype(np.int64)


def _agglomerate(
    plane: _Plane, number: NDArray[np.int64], looks: NDArray[np.float64], error_m: float
) -> NDArray[np.int64]:
    """Merge the most similar pair until none is similar enough; return the new numbers."""
    weight = np.bincount(number, looks)
    centres = plane.means(number, looks)
    owner = np.arange(len(weight))
    low, high = np.full((2, len(weight)), np.inf), np.full((2, len(weight)), -np.inf)
    for axis, values in enumerate(plane):
        np.minimum.at(low[axis], number, values)
        np.maximum.at(high[axis], number, values)
    while True:
        shared = weight[:, None] * weight[None, :] / (weight[:, None] + weight[None, :])
        squares = centres.squares_to(centres)
        width = np.hypot(
            *(
                np.maximum(high[axis][:, None], high[axis][None, :])
                - np.minimum(low[axis][:, None], low[axis][None, :])
                for axis in range(2)
            )
        )
        possible = (squares <= UNITE_MAX_M * UNITE_MAX_M) & (width <= WIDTH_MAX_M)
        unlike = np.where(possible, squares * shared / error_m**2, np.inf)
        np.fill_diagonal(unlike, np.inf)
        one, other = np.unravel_index(int(np.argmin(unlike)), unlike.shape)
        if not unlike[one, other] < _SAME_CHI_SQUARE:
            return owner
        total = weight[one] + weight[other]
        for axis, values in enumerate(centres):
            values[one] += weight[other] / total * (values[other] - values[one])
            values[other] = np.nan
            low[axis, one] = min(low[axis, one], low[axis, other])
            high[axis, one] = max(high[axis, one], high[axis, other])
        weight[one] = total
        owner[owner == other] = one


def _error_m(stays: Stays, looks: NDArray[np.float64], number: NDArray[np.int64]) -> float:
    """Return the error of one observation of this device (m), from the scatter of its stays."""
    size = np.bincount(number)[number]
    some = size >= _ERROR_PLACE_STAYS_MIN
    if some.sum() < _ERROR_STAYS_MIN:
        return _ERROR_M
    lat, lon = _means(stays, looks, number)
    away = distances_m(lat[number], lon[number], stays.lat, stays.lon)
    # A stay that contributes most to its place's centre is near it for that reason alone.
    left = np.maximum(1 - looks / np.bincount(number, looks)[number], 0.05)
    median = float(np.median((away * away * looks / left)[some]))
    return min(max(math.sqrt(median / _MEDIAN_OF_CHI_SQUARE), _ERROR_MIN_M), _ERROR_MAX_M)


def _means(
    stays: Stays, weight: NDArray[np.float64], number: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return latitude and longitude of the mean of each number."""
    # Longitudes are relative to the first stay of each, so that the date line does no harm.
    origin = stays.lon[np.unique(number, return_index=True)[1]]
    relative = (stays.lon - origin[number] + 180) % 360 - 180
    total = np.bincount(number, weight)
    lat = np.bincount(number, weight * stays.lat) / total
    lon = origin + np.bincount(number, weight * relative) / total
    return lat, (lon + 180) % 360 - 180


def centres_of(
    stays: Stays, number: NDArray[np.int64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return latitude and longitude of each place.

    It is the mean of the place's stays, weighted by their observations, without stays far from the
    median.
    """
    weight = looks_of(stays)
    first = np.unique(number, return_index=True)[1]
    origin = stays.lon[first]
    relative = (stays.lon - origin[number] + 180) % 360 - 180
    north = _weighted_medians(stays.lat, weight, number, count)
    east = _weighted_medians(relative, weight, number, count)
    distance = distances_m(
        north[number], origin[number] + east[number], stays.lat, origin[number] + relative
    )
    near = np.where(distance <= _STRAY_M, weight, 0.0)
    total = np.bincount(number, near, count)
    some = total > 0
    divisor = np.where(some, total, 1.0)
    # Differences to the median are small, so that their sums lose no precision.
    north += np.where(
        some, np.bincount(number, near * (stays.lat - north[number]), count) / divisor, 0
    )
    east += np.where(
        some, np.bincount(number, near * (relative - east[number]), count) / divisor, 0
    )
    return np.round(north, 7), np.round((origin + east + 180) % 360 - 180, 7)


def _weighted_medians(
    values: NDArray[np.float64],
    weight: NDArray[np.float64],
    number: NDArray[np.int64],
    count: int,
) -> NDArray[np.float64]:
    order = np.lexsort((values, number))
    running = np.cumsum(weight[order])
    last = np.cumsum(np.bincount(number, minlength=count)) - 1
    before = np.concatenate([[0.0], running[last[:-1]]])
    middle = np.searchsorted(running, before + (running[last] - before) / 2)
    # Rounding may lead to the position after the group.
    result: NDArray[np.float64] = values[order][np.minimum(middle, last)]
    return result
