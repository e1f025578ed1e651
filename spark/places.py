"""Favourite places of one device: where it stayed, again and again.

Stays (spark.stay_points) -> places (stays within 100 m of each other) -> visits (stays at one place
at most 30 minutes apart) -> trips between them, labels. No Spark, no files: arrays in, places out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark.fixes import METRES_PER_DEGREE, Fixes, distances_m, to_degrees
from spark.place_labels import Visits, label_places, weekly_profile
from spark.place_names import sun_offset_ms
from spark.stay_points import StayFinder, link_places

LINK_M: Final = 100.0

#: Linking has no limit of its own: beyond this spread a chain of stays may be several places.
SPREAD_MAX_M: Final = 120.0

#: Centres of places that are closer than this are one place.
SAME_M: Final = 75.0

_REFINEMENTS: Final = 8

#: Stays so close in time and in space are one stay that was cut.
JOIN_M: Final = 150.0
JOIN_MS: Final = 5 * 60_000

MERGE_MS: Final = 30 * 60_000

#: Two visits with so much time between them have no trip: nobody knows where the device was.
TRIP_MAX_MS: Final = 24 * 3_600_000

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
    confidence: float | None  # of the label, 0..1
    visits: int
    days: int  # different local dates
    dwell_ms: int
    radius_m: float  # within which all stays lie
    first: int  # start of the first visit
    last: int  # end of the last
    profile: list[int]  # minutes spent there in each hour of the local week, from Monday 0:00


class Visit(NamedTuple):
    """A time at a place; times in ms since 1970 UTC."""

    start: int
    end: int
    place_id: str | None  # None: a place that is no favourite (yet)
    lat: float
    lon: float
    silent_ms: int  # of it, time in silences of more than 15 minutes, which no fix vouches for
    fixes: int


class Trip(NamedTuple):
    """The way from one visit to the next."""

    start: int
    end: int
    origin: str | None  # place_id
    destination: str | None
    distance_m: float  # in a straight line


@dataclass(frozen=True)
class DevicePlaces:
    """All that is found out about one device."""

    places: list[Place]
    visits: list[Visit]
    trips: list[Trip]


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
        """From rows of STAY_TYPE."""
        return cls(
            found["start"].copy(),
            found["end"].copy(),
            to_degrees(found["lat"]),
            to_degrees(found["lon"]),
            found["silent"].copy(),
            found["fixes"].copy(),
        )


def sun_clock(lat: float, lon: float, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """The offset from UTC (ms) of the sun's time zone, in whole hours."""
    return np.full(len(times), sun_offset_ms(lon), np.int64)


def stays_of(fixes: Fixes) -> Stays:
    """The stays in fixes that are ascending by time; the last may still go on."""
    finder = StayFinder()
    finder.feed(*fixes)
    return Stays.of(finder.take_open())


def find_places(device: str, stays: Stays, clock: Clock = sun_clock) -> DevicePlaces:
    """The places of a device, the one with the most time first, its visits and its trips."""
    if not len(stays.start):
        return DevicePlaces([], [], [])
    stays = join_stays(stays)
    number = cluster(stays)
    count = int(number.max()) + 1
    merged = merge_visits(stays, number)
    lats, lons = centres_of(stays, number, count)
    centres = list(zip(lats.tolist(), lons.tolist(), strict=True))
    radius = np.zeros(count)
    np.maximum.at(radius, number, distances_m(lats[number], lons[number], stays.lat, stays.lon))
    first_stay = stays.start[np.unique(number, return_index=True)[1]].tolist()
    dwell = np.bincount(merged.place, merged.end - merged.start, count)
    local = _local(merged, centres, clock)
    labels = label_places(local, count)
    ids: list[str | None] = [None] * count
    places = []
    for place, (lat, lon) in enumerate(centres):
        own = merged.place == place
        days = _days(local.start[own], local.end[own])
        label = labels.get(place)
        enough = days >= 2 or int(own.sum()) >= 2
        if label is None and (dwell[place] < _DWELL_MIN_MS or not enough):
            continue
        identity = place_id(device, first_stay[place])
        ids[place] = identity
        places.append(
            Place(
                place_id=identity,
                lat=lat,
                lon=lon,
                label=label.name if label else None,
                confidence=round(label.confidence, 2) if label else None,
                visits=int(own.sum()),
                days=days,
                dwell_ms=int(dwell[place]),
                radius_m=round(float(radius[place]), 1),
                first=int(merged.start[own].min()),
                last=int(merged.end[own].max()),
                profile=weekly_profile(local.start[own], local.end[own]),
            )
        )
    places.sort(key=lambda each: (-each.dwell_ms, each.place_id))
    visits = _visits(stays, merged, number, centres, ids)
    return DevicePlaces(places, visits, _trips(visits))


def _visits(
    stays: Stays,
    merged: Visits,
    number: NDArray[np.int64],
    centres: list[tuple[float, float]],
    ids: list[str | None],
) -> list[Visit]:
    # Which visit each stay belongs to: those that start at or before it, the last of them.
    owner = np.searchsorted(merged.start, stays.start, "right") - 1
    silent = np.bincount(owner, stays.silent, len(merged.start))
    fixes = np.bincount(owner, stays.fixes, len(merged.start))
    return [
        Visit(
            start,
            end,
            ids[place],
            centres[place][0],
            centres[place][1],
            int(silent[index]),
            int(fixes[index]),
        )
        for index, (place, start, end) in enumerate(
            zip(merged.place.tolist(), merged.start.tolist(), merged.end.tolist(), strict=True)
        )
    ]


def _trips(visits: list[Visit]) -> list[Trip]:
    trips = []
    for before, after in pairwise(visits):
        same = before.place_id == after.place_id and before.place_id is not None
        if same or not 0 <= after.start - before.end <= TRIP_MAX_MS:
            continue
        distance = distances_m(before.lat, before.lon, np.array([after.lat]), np.array([after.lon]))
        trips.append(
            Trip(
                before.end,
                after.start,
                before.place_id,
                after.place_id,
                round(float(distance[0]), 1),
            )
        )
    return trips


def _local(visits: Visits, centres: list[tuple[float, float]], clock: Clock) -> Visits:
    start, end = visits.start.copy(), visits.end.copy()
    for place, (lat, lon) in enumerate(centres):
        own = visits.place == place
        start[own] += clock(lat, lon, visits.start[own])
        end[own] += clock(lat, lon, visits.end[own])
    # Back over a change of the clock, a visit does not get shorter than nothing.
    return Visits(visits.place, start, np.maximum(start, end))


def join_stays(stays: Stays) -> Stays:
    """Join stays that are one, cut by a fix that was measured badly.

    They follow each other at once or nearly so, and their middles are close.
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


def cluster(stays: Stays) -> NDArray[np.int64]:
    """The number of each stay's place, in the order of the places' first stays.

    Stays that can be reached from each other in steps of LINK_M belong together, unless they spread
    over more than one place can: such a chain is cut around the stays with the most fixes.
    """
    linked = link_places(stays.lat, stays.lon, LINK_M)
    result = np.empty(len(linked), np.int64)
    next_number = 0
    order = np.argsort(linked, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(linked[order])) + 1):
        for part in _split(stays, members):
            result[part] = next_number
            next_number += 1
    first = np.unique(result, return_index=True)[1]
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[result]


def _split(stays: Stays, members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut a chain of stays where two places are near each other."""
    if len(members) == 1:
        return [members]
    lat, lon = stays.lat[members], stays.lon[members]
    north = (lat - lat[0]) * METRES_PER_DEGREE
    east = ((lon - lon[0] + 180) % 360 - 180) * (METRES_PER_DEGREE * np.cos(np.radians(lat[0])))
    if np.hypot(np.ptp(north), np.ptp(east)) <= SPREAD_MAX_M:
        return [members]
    weight = stays.fixes[members].astype(np.float64)
    # The stay with most fixes is where the first place is; further places are where stays are too
    # far from all places there are.
    centres: list[tuple[float, float]] = []
    nearest = np.full(len(members), np.inf)
    order = np.argsort(-weight, kind="stable")
    for index in order.tolist():
        if nearest[index] > LINK_M:
            centres.append((float(north[index]), float(east[index])))
            nearest = np.minimum(nearest, np.hypot(north - centres[-1][0], east - centres[-1][1]))
    points = np.array(centres)
    for _ in range(_REFINEMENTS):
        distance = np.hypot(north[:, None] - points[None, :, 0], east[:, None] - points[None, :, 1])
        owner = np.argmin(distance, axis=1)
        total = np.bincount(owner, weight, len(points))
        kept = total > 0
        points = np.column_stack(
            [
                np.bincount(owner, weight * axis, len(points))[kept] / total[kept]
                for axis in (north, east)
            ]
        )
        apart = np.hypot(
            points[:, None, 0] - points[None, :, 0], points[:, None, 1] - points[None, :, 1]
        )
        close = np.argwhere(np.triu(apart < SAME_M, 1))
        if len(close):
            # Two centres that came together are one place: that of the fewer fixes goes.
            total = total[kept]
            one, other = close[0]
            points = np.delete(points, one if total[one] < total[other] else other, axis=0)
    distance = np.hypot(north[:, None] - points[None, :, 0], east[:, None] - points[None, :, 1])
    owner = np.argmin(distance, axis=1)
    return [members[owner == number] for number in range(len(points)) if (owner == number).any()]


def merge_visits(stays: Stays, number: NDArray[np.int64]) -> Visits:
    """Join stays at one place that follow each other within half an hour."""
    same = number[1:] == number[:-1]
    close = stays.start[1:] - stays.end[:-1] <= MERGE_MS
    begins = np.concatenate([[True], ~(same & close)])
    first = np.flatnonzero(begins)
    last = np.concatenate([first[1:] - 1, [len(number) - 1]])
    return Visits(number[first], stays.start[first], stays.end[last])


def centres_of(
    stays: Stays, number: NDArray[np.int64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latitude and longitude of each place.

    The mean of its stays by the time they lasted, without those that lie far from most of it.
    """
    weight = (stays.end - stays.start).astype(np.float64)
    # Longitudes relative to the place's first stay: a mean across the date line means nothing.
    first = np.unique(number, return_index=True)[1]
    origin = stays.lon[first]
    relative = (stays.lon - origin[number] + 180) % 360 - 180
    north = _weighted_medians(stays.lat, weight, number, count)
    east = _weighted_medians(relative, weight, number, count)
    distance = distances_m(
        north[number], origin[number] + east[number], stays.lat, origin[number] + relative
    )
    near = np.where(distance <= LINK_M, weight, 0.0)
    total = np.bincount(number, near, count)
    some = total > 0
    divisor = np.where(some, total, 1.0)
    # Differences to the median are small: their sums lose nothing.
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
    # Rounding may lead just past the group.
    result: NDArray[np.float64] = values[order][np.minimum(middle, last)]
    return result


def place_id(device: str, first_ms: int) -> str:
    """An id from the device and the start of its first stay there: later stays do not change it."""
    return hashlib.blake2b(f"{device}\0{first_ms}".encode(), digest_size=8).hexdigest()


def _days(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    days: set[int] = set()
    for first, last in zip((start // DAY_MS).tolist(), (end // DAY_MS).tolist(), strict=True):
        days.update(range(first, last + 1))
    return len(days)
