"""Journeys that nobody can have made: whole runs of fixes that are wrong are left out.

A phone that is "in Tokyo" for twenty minutes each night, or at a mast some kilometres away for a
pair of fixes, cannot be judged fix by fix: within the run all is well. Here a device's stays are
cut into episodes wherever the way from one to the next was too fast. The most that can be true at
the same time is kept: the chain of episodes with the longest observation, where each impossible
journey that remains costs as much as `_PENALTY_MS` of it. So a short excursion that needs two such
journeys is dropped, and neither half of a life is, although one leap separates them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark.places.stay_points import link_places
from spark.places.stays import Stays
from waylog import great_circle

# A way shorter than this (m) may be an error of measurement.
_LEAP_MIN_M: Final = 1_000.0
# Metres by which two fixes may be wrong together.
_ERROR_M: Final = 250.0
# Nothing is faster (m/s) from standstill to standstill up to some distances (m), and takes less
# than these times (s) besides: cars, fast trains, airliners.
_SPEED_M_PER_S: Final = np.array([45.0, 90.0, 290.0])
_EXTRA_S: Final = np.array([0.0, 0.0, 1800.0])
_UP_TO_M: Final = np.array([50_000.0, 600_000.0])
# A way this long (m) separates episodes, however long it took: a phone that reports seldom may have
# had the time for an impossible way out, but not for the one back.
_FAR_M: Final = 100_000.0

_PENALTY_MS: Final = 2 * 3_600_000
# The silences around a stay count for up to this long (ms): a device may report once per visit.
_SILENT_WEIGHT_MS: Final = 10 * 60_000
# A region with this many spots, in a grid of this width (degrees), counts fully.
_SPOTS_MANY: Final = 10
_SPOT_DEGREES: Final = 0.01
# Spots within this distance (m) are the same.
_AGAIN_M: Final = 200.0
# Nobody goes farther than this (m) and back to be seen at one spot for less than this (ms), or for
# less than this share of the time.
_OUTING_M: Final = 1_000_000.0
_OUTING_MS: Final = 2 * 3_600_000
_OUTING_SHARE: Final = 0.15
# Nobody goes farther than this (m) and comes back, faster than this (m/s) both times, without a fix
# on the way.
_SALLY_M: Final = 1_500.0
_SALLY_M_PER_S: Final = 10.0
# How many episodes in a row may be wrong.
_REACH: Final = 12
# So many stays before and after an impossible journey are episodes of their own.
_AROUND: Final = 2


def without_impossible(stays: Stays) -> Stays:
    """Return the stays without excursions that cannot have been made.

    The stays around them know each other as neighbours. O(n) time for n stays.
    """
    stays = _without_sallies(_without_outings(stays))
    count = len(stays.start)
    came, went = stays.came_m, stays.went_m
    out = _too_fast(went, stays.after - stays.seen)
    into = _too_fast(came, stays.first - stays.before)
    if not (out.any() or into.any()):
        return stays
    # The fixes beyond a leap are judged as well, if they belong to no stay.
    before = np.flatnonzero(into & ~np.isin(stays.before, stays.seen))
    after = np.flatnonzero(out & ~np.isin(stays.after, stays.first))
    rows, single = np.arange(count), len(before) + len(after)
    observed = stays.seen - stays.first - stays.quiet
    for gap in (stays.first - stays.before, stays.after - stays.seen):
        observed = observed + np.minimum(gap, _SILENT_WEIGHT_MS)
    each = _Seen(
        np.concatenate([stays.first, stays.before[before], stays.after[after]]),
        np.concatenate([stays.seen, stays.before[before], stays.after[after]]),
        np.concatenate([stays.lat, stays.before_lat[before], stays.after_lat[after]]),
        np.concatenate([stays.lon, stays.before_lon[before], stays.after_lon[after]]),
        np.concatenate([observed, np.ones(single)]),
        np.concatenate([rows, np.full(single, -1)]),
    )
    each = each.sorted()
    chosen = each.row[_best_chain(each)]
    chosen = chosen[chosen >= 0]
    # What lay between two stays that are neighbours now is no part of anybody's way.
    gone = (np.diff(chosen) > 1) | (out[chosen[:-1]] & into[chosen[1:]])
    return _neighbours(stays.take(chosen), np.flatnonzero(gone))


def _without_outings(stays: Stays) -> Stays:
    """Return the stays without those for which nobody flies over an ocean and back.

    There may have been the time for it, but who goes that far sees more than one spot, or stays.
    """
    if not len(stays.start):
        return stays
    region = link_places(stays.lat, stays.lon, _FAR_M)
    begins = np.concatenate([[0], np.flatnonzero(np.diff(region)) + 1])
    if len(begins) < 2:
        return stays
    ends = np.concatenate([begins[1:], [len(region)]]) - 1
    ways = great_circle.distances_m(
        stays.lat[ends[:-1]], stays.lon[ends[:-1]], stays.lat[begins[1:]], stays.lon[begins[1:]]
    )
    far = ways > _OUTING_M
    observed = np.add.reduceat(stays.seen - stays.first - stays.quiet, begins)
    span = stays.after[ends] - stays.before[begins]
    short = (observed < _OUTING_MS) | (observed < _OUTING_SHARE * span)
    # What is newest waits until more is seen of it.
    gone = short & (_spots(stays)[begins] <= 1)
    gone &= np.concatenate([[False], far]) & np.concatenate([far, [True]])
    if not gone.any():
        return stays
    kept = np.flatnonzero(~np.repeat(gone, ends - begins + 1))
    return _neighbours(stays.take(kept), np.flatnonzero(np.diff(kept) > 1))


def _without_sallies(stays: Stays) -> Stays:
    """Return the stays without those that were left and reached at once, from and to one spot.

    A drive takes its time at both ends. Whoever is there and back again between two fixes each, at
    the speed of a car on a motorway, was never away; the spot that is seen less often is wrong.
    """
    came, went = stays.came_m, stays.went_m
    swift = np.full(len(stays.start), _SALLY_M)
    for metres, gap in ((came, stays.first - stays.before), (went, stays.after - stays.seen)):
        swift = np.minimum(swift, metres * 1000 / np.maximum(gap, 1000) * (metres > _SALLY_M))
    back = great_circle.distances_m(
        stays.before_lat, stays.before_lon, stays.after_lat, stays.after_lon
    )
    short = stays.seen - stays.first - stays.quiet < _OUTING_MS
    rows = np.flatnonzero((swift > _SALLY_M_PER_S) & (back <= _AGAIN_M) & short)
    if not len(rows):
        return stays
    count = len(stays.start)
    spot = link_places(
        np.concatenate([stays.lat, stays.before_lat[rows]]),
        np.concatenate([stays.lon, stays.before_lon[rows]]),
        _AGAIN_M,
    )
    visits = np.bincount(spot[:count], minlength=int(spot.max()) + 1)
    gone = rows[visits[spot[rows]] < visits[spot[count:]]]
    kept = np.delete(np.arange(count), gone)
    return _neighbours(stays.take(kept), np.flatnonzero(np.diff(kept) > 1))


class _Seen(NamedTuple):
    """Stays and single fixes, ascending by time."""

    first: NDArray[np.int64]
    seen: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    weight: NDArray[np.float64]  # ms of observation
    row: NDArray[np.int64]  # number of the stay, -1 for a fix

    def sorted(self) -> _Seen:
        """Return the same, ascending by time."""
        order = np.argsort(self.first, kind="stable")
        return _Seen(
            self.first[order],
            self.seen[order],
            self.lat[order],
            self.lon[order],
            self.weight[order],
            self.row[order],
        )

    def way_m(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
        return great_circle.distances_m(
            self.lat[one], self.lon[one], self.lat[other], self.lon[other]
        )

    def leaps(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which ways cannot have been made."""
        return _too_fast(self.way_m(one, other), self.first[other] - self.seen[one])


def _neighbours(stays: Stays, pairs: NDArray[np.int64]) -> Stays:
    """Return the stays, where each of `pairs` has nothing between it and the next."""
    after, before = stays.after.copy(), stays.before.copy()
    after_lat, after_lon = stays.after_lat.copy(), stays.after_lon.copy()
    before_lat, before_lon = stays.before_lat.copy(), stays.before_lon.copy()
    after[pairs], before[pairs + 1] = stays.first[pairs + 1], stays.seen[pairs]
    after_lat[pairs], after_lon[pairs] = stays.lat[pairs + 1], stays.lon[pairs + 1]
    before_lat[pairs + 1], before_lon[pairs + 1] = stays.lat[pairs], stays.lon[pairs]
    return replace(
        stays,
        after=after,
        after_lat=after_lat,
        after_lon=after_lon,
        before=before,
        before_lat=before_lat,
        before_lon=before_lon,
    )


def _best_chain(each: _Seen) -> NDArray[np.int64]:
    """Return which stays and fixes to keep, ascending."""
    count = len(each.first)
    rows = np.arange(count - 1)
    cut = each.leaps(rows, rows + 1)
    # Next to a leap, each stay stands for itself: a wrong one may have had the time for one way.
    cut = np.convolve(cut, np.ones(2 * _AROUND + 1), "full")[_AROUND:-_AROUND] > 0
    cut |= each.way_m(rows, rows + 1) > _FAR_M
    begins = np.concatenate([[0], np.flatnonzero(cut) + 1])
    ends = np.concatenate([begins[1:], [count]]) - 1
    weight = np.add.reduceat(each.weight * _credit(each), begins)
    best, previous = np.zeros(len(begins)), np.full(len(begins), -1)
    for number in range(len(begins)):
        # All that came before may be wrong as well.
        best[number] = weight[number]
        older = np.arange(max(0, number - _REACH), number)
        if not len(older):
            continue
        leap = each.leaps(ends[older], np.full(len(older), begins[number]))
        total = best[older] + weight[number] - np.where(leap, _PENALTY_MS, 0)
        choice = int(np.argmax(total))
        if total[choice] > best[number]:
            best[number], previous[number] = total[choice], older[choice]
    chain = [int(np.argmax(best))]
    while previous[chain[-1]] >= 0:
        chain.append(int(previous[chain[-1]]))
    return np.concatenate([np.arange(begins[part], ends[part] + 1) for part in chain[::-1]])


def _spots(points: Stays | _Seen) -> NDArray[np.int64]:
    """Return the number of spots in each point's region."""
    region = link_places(points.lat, points.lon, _FAR_M)
    north, east = np.rint(points.lat / _SPOT_DEGREES), np.rint(points.lon / _SPOT_DEGREES)
    spots = np.unique(np.stack([region, north, east]), axis=1)[0]
    return np.bincount(spots.astype(np.int64), minlength=int(region.max()) + 1)[region]


def _credit(each: _Seen) -> NDArray[np.float64]:
    """Return how far each point agrees with the rest of a life, at most 1.

    People move about where they are, and come back. A phone that is wrong is so in few places.
    """
    spot = link_places(each.lat, each.lon, _AGAIN_M)
    again = np.bincount(spot)[spot] > 1
    credit = np.minimum(_spots(each), _SPOTS_MANY) * np.where(again, 1.0, 0.5)
    result: NDArray[np.float64] = credit / credit.max()
    return result


def _too_fast(metres: NDArray[np.float64], time_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
    kind = np.searchsorted(_UP_TO_M, metres)
    least_s = _EXTRA_S[kind] + (metres - _ERROR_M) / _SPEED_M_PER_S[kind]
    result: NDArray[np.bool_] = (metres > _LEAP_MIN_M) & (time_ms / 1000 < least_s)
    return result
