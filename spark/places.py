"""Favourite places of one device: where it stayed, again and again.

Clean fixes -> stays (spark.stay_points) -> places (stays within 100 m of each other) -> visits
(stays at one place at most 30 minutes apart) -> labels. No Spark, no files: arrays in, places out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.cleaning import METRES_PER_DEGREE, Fixes, clean, distances_m
from spark.place_labels import Visits, label_places
from spark.place_names import sun_offset_ms
from spark.stay_points import find_stays, link_places

LINK_M: Final = 100.0

#: Linking has no limit of its own: stays along a street would become one place.
DIAMETER_MAX_M: Final = 300.0

MERGE_MS: Final = 30 * 60_000

# A place counts when it was visited twice, or over two days, and for half an hour in all.
_DWELL_MIN_MS: Final = 30 * 60_000

DAY_MS: Final = 86_400_000

#: The offset of local time from UTC (ms) at (lat, lon), at each of some times (ms UTC).
Clock = Callable[[float, float, NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True)
class Place:
    """A place of one device; times in ms since 1970 UTC."""

    place_id: str
    lat: float
    lon: float
    label: str | None  # "home", "work" or None
    visits: int
    days: int  # different local dates
    dwell_ms: int
    radius_m: float  # within which all stays lie
    first: int  # start of the first visit
    last: int  # end of the last


@dataclass(frozen=True)
class Stays:
    """Stays of one device, ascending by time."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]


def sun_clock(lat: float, lon: float, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The offset from UTC (ms) of the sun's time zone, in whole hours."""
    return np.full(len(times), sun_offset_ms(lon), np.int64)


def find_places(
    device: str, fixes: Fixes, accuracy: NDArray[np.float64], clock: Clock = sun_clock
) -> list[Place]:
    """The places of a device, the one with the most time first."""
    stays = stays_of(clean(fixes, accuracy))
    if not len(stays.start):
        return []
    number = cluster(stays)
    count = int(number.max()) + 1
    visits = merge_visits(stays, number)
    centres = [centre(stays, number == place) for place in range(count)]
    dwell = np.bincount(visits.place, visits.end - visits.start, count)
    local = _local(visits, centres, clock)
    labels = label_places(local, count)
    places = []
    for place, (lat, lon) in enumerate(centres):
        own = visits.place == place
        days = _days(local.start[own], local.end[own])
        label = labels.get(place)
        enough = days >= 2 or int(own.sum()) >= 2
        if label is None and (dwell[place] < _DWELL_MIN_MS or not enough):
            continue
        members = number == place
        distances = distances_m(
            np.full(int(members.sum()), lat),
            np.full(int(members.sum()), lon),
            stays.lat[members],
            stays.lon[members],
        )
        places.append(
            Place(
                place_id=place_id(device, lat, lon),
                lat=round(lat, 7),
                lon=round(lon, 7),
                label=label,
                visits=int(own.sum()),
                days=days,
                dwell_ms=int(dwell[place]),
                radius_m=round(float(distances.max()), 1),
                first=int(visits.start[own].min()),
                last=int(visits.end[own].max()),
            )
        )
    return sorted(places, key=lambda each: (-each.dwell_ms, each.place_id))


def _local(visits: Visits, centres: list[tuple[float, float]], clock: Clock) -> Visits:
    start, end = visits.start.copy(), visits.end.copy()
    for place, (lat, lon) in enumerate(centres):
        own = visits.place == place
        start[own] += clock(lat, lon, visits.start[own])
        end[own] += clock(lat, lon, visits.end[own])
    # Back over a change of the clock, a visit does not get shorter than nothing.
    return Visits(visits.place, start, np.maximum(start, end))


def stays_of(fixes: Fixes) -> Stays:
    """The stays in clean fixes, with the mean of their fixes as position."""
    found = find_stays(fixes.time, fixes.lat, fixes.lon)
    if not len(found):
        empty = np.empty(0)
        return Stays(np.empty(0, np.int64), np.empty(0, np.int64), empty, empty)
    first, finish, stop = found.T
    # Sums over first..stop-1 of each stay: every second entry is a gap between two stays.
    bounds = np.column_stack([first, stop]).ravel()
    if bounds[-1] == len(fixes.time):
        bounds = bounds[:-1]
    counts = stop - first
    anchor_lon = fixes.lon[first]
    lat = np.add.reduceat(fixes.lat, bounds)[::2] / counts
    # Longitudes relative to the stay's first fix: a mean across the date line means nothing. Fixes
    # between two stays are in no sum that is used.
    owner = np.minimum(np.searchsorted(stop, np.arange(len(fixes.time)), "right"), len(first) - 1)
    relative = (fixes.lon - anchor_lon[owner] + 180) % 360 - 180
    lon = anchor_lon + np.add.reduceat(relative, bounds)[::2] / counts
    lon = (lon + 180) % 360 - 180
    return Stays(fixes.time[first], fixes.time[finish], lat, lon)


def cluster(stays: Stays) -> NDArray[np.int64]:
    """The number of each stay's place: linked stays are one, but none grows beyond the cap."""
    linked = link_places(stays.lat, stays.lon, LINK_M)
    result = np.empty(len(linked), np.int64)
    next_number = 0
    for number in range(int(linked.max()) + 1):
        members = np.flatnonzero(linked == number)
        for part in _split(stays, members):
            result[part] = next_number
            next_number += 1
    return result


def _split(stays: Stays, members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut a chain of stays that is too long, around the stays that lasted longest."""
    lat, lon = stays.lat[members], stays.lon[members]
    height = float(np.ptp(lat)) * METRES_PER_DEGREE
    east = ((lon - lon[0] + 180) % 360 - 180) * np.cos(np.radians(lat[0]))
    width = float(np.ptp(east)) * METRES_PER_DEGREE
    if np.hypot(height, width) <= DIAMETER_MAX_M:
        return [members]
    parts = []
    dwell = (stays.end - stays.start)[members]
    rest = np.ones(len(members), np.bool_)
    while rest.any():
        leader = int(np.flatnonzero(rest)[np.argmax(dwell[rest])])
        ones = np.ones(len(members))
        near = distances_m(ones * lat[leader], ones * lon[leader], lat, lon) <= LINK_M
        near &= rest
        near[leader] = True
        parts.append(members[near])
        rest &= ~near
    return parts


def merge_visits(stays: Stays, number: NDArray[np.int64]) -> Visits:
    """Join stays at one place that follow each other within half an hour."""
    same = number[1:] == number[:-1]
    close = stays.start[1:] - stays.end[:-1] <= MERGE_MS
    begins = np.concatenate([[True], ~(same & close)])
    first = np.flatnonzero(begins)
    last = np.concatenate([first[1:] - 1, [len(number) - 1]])
    return Visits(number[first], stays.start[first], stays.end[last])


def centre(stays: Stays, members: NDArray[np.bool_]) -> tuple[float, float]:
    """The median of stays by the time they lasted: a bad stay does not move it."""
    lat, lon = stays.lat[members], stays.lon[members]
    weight = (stays.end - stays.start)[members].astype(np.float64)
    relative = (lon - lon[0] + 180) % 360 - 180
    middle = (lon[0] + _weighted_median(relative, weight) + 180) % 360 - 180
    return _weighted_median(lat, weight), float(middle)


def _weighted_median(values: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def place_id(device: str, lat: float, lon: float) -> str:
    """An id from the device and the centre, rounded to some 11 m."""
    identity = f"{device}\0{lat:.4f}\0{lon:.4f}"
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()


def _days(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    days: set[int] = set()
    for first, last in zip((start // DAY_MS).tolist(), (end // DAY_MS).tolist(), strict=True):
        days.update(range(first, last + 1))
    return len(days)
