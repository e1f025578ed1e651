"""How a device reports, and what its silence therefore means.

Phones report continuously, every ten minutes or every hour, only after a significant change of
position, or only while they move. The same silence means different things:

* A device that is *silent when still* was where it was last seen until shortly before it is seen
  elsewhere. A stay may then consist of a single fix.
* A device that reports *at intervals* left at some time between its last fix here and its first one
  there. Half of that time, less the way, is given to each place. A silence much longer than its
  interval is an *outage*: then it is believed to have stayed unseen at most twice as long as it was
  seen.

The manner is learned from the device's own long stays of the days around, since a phone's settings
change. Nothing here knows which app it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.places.stays import Stays
from waylog import great_circle

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS

# The manner is learned from stays that may have lasted this long (ms), each counting for at most
# `_LONG_MAX_MS`, within this time before and after (ms).
_LONG_MIN_MS: Final = 90 * _MINUTE_MS
_LONG_MAX_MS: Final = 12 * _HOUR_MS
_WINDOW_MS: Final = 4 * 24 * _HOUR_MS
# A device counts as silent when still if its longest silence takes this share of a long stay, or
# all silences this one, when the time between two fixes is this many times that of the way there.
_SILENT_SHARE: Final = 0.5
_QUIET_SHARE: Final = 0.6
_CADENCES: Final = 8.0
_CADENCE_MIN_MS: Final = 1000

# A pause between two fixes of up to this time (ms) belongs to the first of them.
_PAUSE_MS: Final = 5 * _MINUTE_MS
# Silences above this multiple of a device's interval are outages, for which it is believed to have
# stayed at most this many times as long as it was seen.
_OUTAGE_INTERVALS: Final = 2.5
_OUTAGE_MIN_MS: Final = 15 * _MINUTE_MS
_UNSEEN_FACTOR: Final = 2
# A device that is silent when still reports when it is some way off: this many times as far as it
# usually is, within these bounds (m). If it is found farther away it was off on the way.
_NOTICED_TIMES: Final = 10.0
_NOTICED_M: Final = (2_500.0, 8_000.0)
_NEAR_M: Final = 50.0
# A device that is seen again this near (m), after this time (ms) at most, never left.
_SAME_M: Final = 300.0
_SAME_MAX_MS: Final = 24 * _HOUR_MS
# A place that was seen for less than a stay gets nothing of a silence towards a fix this near (m).
_GLIMPSE_M: Final = 500.0
_ABSENT_MS: Final = 26 * _HOUR_MS
# Whatever its manner, a device is not believed to have been still for longer (ms).
_SILENT_MAX_MS: Final = 2 * 24 * _HOUR_MS

# A spot is on the way from one fix to another if it makes the way at most this much longer; then it
# must have been a stay for this share of the device's interval.
_DETOUR: Final = 1.5
_ON_THE_WAY: Final = 0.75

# Nobody is faster than this (m/s) where only limits are asked for.
_FASTEST_M_PER_S: Final = 40.0

#: Shortest stay (ms), and shortest one that was seen for less.
STAY_MIN_MS: Final = 5 * _MINUTE_MS
_UNSEEN_MIN_MS: Final = 8 * _MINUTE_MS


def travel_ms(metres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how long a way usually takes: on foot, through a town, over land or by air."""
    ground = np.minimum(metres / 1.1, 300 + metres / 7.0)
    far = np.minimum(1500 + metres / 20.0, 7200 + metres / 200.0)
    result: NDArray[np.float64] = 1000 * np.minimum(ground, far)
    return result


def silent_when_still(stays: Stays) -> NDArray[np.bool_]:
    """Return for each stay whether the device was silent when still in the days around it."""
    length = stays.after - stays.first
    long = np.where(length >= _LONG_MIN_MS, np.minimum(length, _LONG_MAX_MS), 0).astype(np.float64)
    tail = stays.after - stays.seen
    lasted = np.maximum(length, 1)
    longest = np.minimum(np.maximum(stays.longest, tail) / lasted, 1.0)
    quiet = np.minimum((stays.quiet + np.where(tail > _OUTAGE_MIN_MS, tail, 0)) / lasted, 1.0)
    one_silence = _around(stays.first, longest * long, long) >= _SILENT_SHARE
    # Signs of life cut a silence; but on the way there are far more fixes.
    some = (long > 0).astype(np.float64)
    at_rest = _around(stays.first, length * some, stays.fixes * some)
    arrived = some * (stays.before < stays.first)
    gap = np.log(np.maximum(stays.first - stays.before, _CADENCE_MIN_MS))
    on_the_way = np.exp(_around(stays.first, gap * arrived, arrived))
    signs_only = (_around(stays.first, quiet * long, long) >= _QUIET_SHARE) & (
        at_rest >= _CADENCES * on_the_way
    )
    result: NDArray[np.bool_] = one_silence | signs_only
    return result


def noticed_m(stays: Stays) -> NDArray[np.float64]:
    """Return how far a device that is silent when still can go without a word, around each stay."""
    tail = stays.after - stays.seen
    some = np.maximum(stays.longest, tail) >= _LONG_MIN_MS
    away = np.where(stays.longest > tail, _NEAR_M, np.maximum(stays.went_m, _NEAR_M))
    weight = some.astype(np.float64)
    usual = np.exp(_around(stays.first, np.log(away) * weight, weight))
    result: NDArray[np.float64] = np.clip(_NOTICED_TIMES * np.nan_to_num(usual), *_NOTICED_M)
    return result


def interval_ms(stays: Stays) -> NDArray[np.float64]:
    """Return the usual time between two fixes at one place around each stay (NaN if unknown)."""
    steps = np.maximum(stays.fixes - 1 - (stays.longest > 0), 0)
    time = np.where(steps > 0, stays.seen - stays.first - stays.longest, 0)
    return _around(stays.first, time.astype(np.float64), steps.astype(np.float64))


def _around(
    time: NDArray[np.int64], amount: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return amount / weight, both summed over the days around each time, or over all days."""
    low = np.searchsorted(time, time - _WINDOW_MS)
    high = np.searchsorted(time, time + _WINDOW_MS, "right")
    sums = []
    for values in (amount, weight):
        total = np.concatenate([[0.0], np.cumsum(values)])
        sums.append(total[high] - total[low])
    whole = float(amount.sum() / weight.sum()) if weight.sum() > 0 else np.nan
    return np.where(sums[1] > 0, sums[0] / np.where(sums[1] > 0, sums[1], 1.0), whole)


def believed(stays: Stays) -> Stays:
    """Return the stays that are believed, with the times that are the most likely.

    O(n log n) time for n stays, which are ascending by time.
    """
    if not len(stays.start):
        return stays
    still = silent_when_still(stays)
    interval = np.nan_to_num(interval_ms(stays), nan=0.0)
    seen, noticed = stays.seen - stays.first, noticed_m(stays)
    lead_gap, tail_gap = stays.first - stays.before, stays.after - stays.seen
    tail = _share(
        still,
        tail_gap,
        np.maximum(tail_gap - travel_ms(stays.went_m), 0),
        stays.went_m,
        interval,
        seen,
        noticed,
        first=True,
    )
    lead = _share(
        still,
        lead_gap,
        np.maximum(lead_gap - travel_ms(stays.came_m), 0),
        stays.came_m,
        interval,
        seen,
        noticed,
        first=False,
    )
    start, end = stays.first - lead, stays.seen + tail
    # Where the manner changes, two places may claim the same silence: the first one has it.
    start[1:] = np.maximum(start[1:], np.minimum(end[:-1], stays.first[1:]))
    length = end - start
    least = np.where(
        still, _UNSEEN_MIN_MS, np.where(_on_the_way(stays), _ON_THE_WAY * interval, STAY_MIN_MS)
    )
    kept = length >= np.where(seen < STAY_MIN_MS, np.maximum(least, STAY_MIN_MS), STAY_MIN_MS)
    silent = stays.quiet + np.where(lead_gap > _OUTAGE_MIN_MS, lead, 0)
    silent += np.where(tail_gap > _OUTAGE_MIN_MS, tail, 0)
    return replace(stays, start=start, end=end, silent=silent).take(np.flatnonzero(kept))


def _share(
    still: NDArray[np.bool_],
    gap: NDArray[np.int64],
    slack: NDArray[np.float64],
    metres: NDArray[np.float64],
    interval: NDArray[np.float64],
    seen: NDArray[np.int64],
    noticed_m: NDArray[np.float64],
    *,
    first: bool,
) -> NDArray[np.int64]:
    """Return how much of a silence was spent at the place before it (`first`) or after it."""
    half = slack / 2
    noticed = still & (metres <= noticed_m)
    outage = gap > np.maximum(_OUTAGE_INTERVALS * interval, _OUTAGE_MIN_MS)
    off = np.where(still, ~noticed & (gap > _ABSENT_MS), outage)
    limit = np.where(off, _UNSEEN_FACTOR * seen, _SILENT_MAX_MS)
    share = np.where(noticed, slack if first else 0.0, half)
    share = np.minimum(share, limit)
    # Who is seen again at the same spot is assumed not to have left.
    pause = ((gap <= _PAUSE_MS) & ~still) | ((metres <= _SAME_M) & (gap <= _SAME_MAX_MS))
    # The last fix on the way to a place is near it.
    glimpse = ~still & (seen < STAY_MIN_MS) & (metres <= _GLIMPSE_M)
    pause, share = pause & ~glimpse, np.where(glimpse, 0.0, share)
    result: NDArray[np.int64] = np.where(pause, gap if first else 0, share).astype(np.int64)
    return result


def _on_the_way(stays: Stays) -> NDArray[np.bool_]:
    """Return which stays lie between the fixes before and after them, and may be none."""
    direct = great_circle.distances_m(
        stays.before_lat, stays.before_lon, stays.after_lat, stays.after_lon
    )
    result: NDArray[np.bool_] = stays.came_m + stays.went_m <= _DETOUR * direct
    return result


def bounds(
    stays: Stays,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the earliest and latest arrivals, then the earliest and latest departures (ms)."""
    fastest = 1000 / _FASTEST_M_PER_S
    earliest = np.minimum(stays.first, stays.before + (stays.came_m * fastest).astype(np.int64))
    latest = np.maximum(stays.seen, stays.after - (stays.went_m * fastest).astype(np.int64))
    return (
        np.minimum(earliest, stays.start),
        np.maximum(stays.first, stays.start),
        np.minimum(stays.seen, stays.end),
        np.maximum(latest, stays.end),
    )
