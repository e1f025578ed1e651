"""Favourite places of one device: where it stayed repeatedly.

Stays (spark.places.stay_points) are grouped into places (stays within 100 m of each other; farther
for a phone that reports before the door, see spark.places.approaches). Stays
at one place at most 30 minutes apart are one visit. Trips connect the visits, and labels mark home
and work. This module uses neither Spark nor files: arrays in, places out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import distances_m
from spark.places.approaches import APPROACH_M, without_approaches
from spark.places.clusters import centres_of, cluster
from spark.places.journeys import without_impossible
from spark.places.labels import Role, Visits, label_places, weekly_profile
from spark.places.names import sun_offset_ms
from spark.places.reporting import believed, bounds
from spark.places.stays import MERGE_MS, Stays, join_stays

#: Milliseconds between two visits above which there is no trip: too little is known about that
#: time.
TRIP_MAX_MS: Final = 24 * 3_600_000

# A place counts if it was visited for this long in total (ms).
_DWELL_MIN_MS: Final = 20 * 60_000

DAY_MS: Final = 86_400_000

# Two homes are farther apart than this (m), or than the second number for a device that is seen on
# the ways to them.
_NEXT_M: Final = 250.0
_NEXT_APPROACHED_M: Final = 2 * APPROACH_M

# A place that was visited only once counts for so long (ms), since it may be new.
_ONCE_MS: Final = 90 * DAY_MS

#: Returns the offset of local time from UTC (ms) at (lat, lon), for each of some times (ms UTC).
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
    days: int  # number of local dates
    dwell_ms: int
    radius_m: float  # radius that contains all stays
    first: int  # start of the first visit
    last: int  # end of the last visit
    profile: list[int]  # minutes spent there in each hour of the local week, from Monday 0:00
    #: What it is and was, in the order of time.
    roles: tuple[PlaceRole, ...] = ()


class PlaceRole(NamedTuple):
    """What a place was for some time: `since` its first visit then, `until` the end of the last."""

    label: str  # "home" or "work"
    since: int
    until: int | None  # None: it still is
    confidence: float


class Visit(NamedTuple):
    """A visit to a place; times in ms since 1970 UTC."""

    start: int
    end: int
    place_id: str | None  # None: a place that is not a favourite (yet)
    lat: float
    lon: float
    silent_ms: int  # part of it in silences of more than 15 minutes, without any fix
    fixes: int
    # The device arrived and departed between these; it is known only in silence.
    arrival_earliest: int
    arrival_latest: int
    departure_earliest: int
    departure_latest: int


class Trip(NamedTuple):
    """The movement from one visit to the next."""

    start: int
    end: int
    origin: str | None  # place_id
    destination: str | None
    distance_m: float  # in a straight line


@dataclass(frozen=True)
class DevicePlaces:
    """The places, visits and trips of one device."""

    places: list[Place]
    visits: list[Visit]
    trips: list[Trip]


def sun_clock(lat: float, lon: float, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offset from UTC (ms) of the solar time zone, in whole hours."""
    return np.full(len(times), sun_offset_ms(lon), np.int64)


def find_places(device: str, stays: Stays, clock: Clock = sun_clock) -> DevicePlaces:
    """Return the places of a device, the one with the most time first, its visits and its trips."""
    stays = believed(without_impossible(stays))
    if not len(stays.start):
        return DevicePlaces([], [], [])
    stays = join_stays(stays)
    number, exact = without_approaches(stays, cluster(stays))
    count = int(number.max()) + 1
    merged = merge_visits(stays, number)
    lats, lons = centres_of(stays.take(exact), number[exact], count)
    centres = list(zip(lats.tolist(), lons.tolist(), strict=True))
    radius = np.zeros(count)
    np.maximum.at(radius, number, distances_m(lats[number], lons[number], stays.lat, stays.lon))
    # Not the believed start: that changes with what is learned of the device.
    first_stay = stays.first[exact[np.unique(number[exact], return_index=True)[1]]].tolist()
    dwell = np.bincount(merged.place, merged.end - merged.start, count)
    local = _local(merged, centres, clock)
    next_m = _NEXT_M if len(exact) == len(number) else _NEXT_APPROACHED_M
    roles = _apart(label_places(local, count), merged, lats, lons, dwell, next_m)
    ids: list[str | None] = [None] * count
    newest = int(stays.seen.max())
    fixes = np.bincount(number, stays.fixes, count)
    places = []
    for place, (lat, lon) in enumerate(centres):
        own = merged.place == place
        days = _days(local.start[own], local.end[own])
        known = _roles(roles.get(place, []), merged)
        label = next((each for each in known[::-1] if each.until is None), None)
        # A single fix may be the last one on the way to somewhere else.
        once = fixes[place] > 1 and int(merged.end[own].max()) >= newest - _ONCE_MS
        enough = int(own.sum()) >= 2 or once
        if not known and (dwell[place] < _DWELL_MIN_MS or not enough):
            continue
        identity = place_id(device, first_stay[place])
        ids[place] = identity
        places.append(
            Place(
                place_id=identity,
                lat=lat,
                lon=lon,
                label=label.label if label else None,
                confidence=label.confidence if label else None,
                visits=int(own.sum()),
                days=days,
                dwell_ms=int(dwell[place]),
                radius_m=round(float(radius[place]), 1),
                first=int(merged.start[own].min()),
                last=int(merged.end[own].max()),
                profile=weekly_profile(local.start[own], local.end[own]),
                roles=known,
            )
        )
    places.sort(key=lambda each: (-each.dwell_ms, each.place_id))
    visits = _visits(stays, merged, number, centres, ids)
    return DevicePlaces(places, visits, _trips(visits))


def _apart(
    roles: dict[int, list[Role]],
    visits: Visits,
    lats: NDArray[np.float64],
    lons: NDArray[np.float64],
    dwell: NDArray[Any],
    next_m: float,
) -> dict[int, list[Role]]:
    """Return the roles, where a second home or job next to one of the same time is that one.

    It was measured badly.
    """
    kept: dict[int, list[Role]] = {}
    for place in sorted(roles, key=lambda each: -dwell[each]):
        near = [
            other
            for other in kept
            if distances_m(lats[place], lons[place], lats[[other]], lons[[other]])[0] <= next_m
        ]
        own = [role for role in roles[place] if not _joined(role, near, kept, visits)]
        if own:
            kept[place] = own
    return kept


def _joined(role: Role, near: list[int], kept: dict[int, list[Role]], visits: Visits) -> bool:
    """Extend a role of a place nearby by one of the same time; tell whether there is one."""
    for place in near:
        for number, known in enumerate(kept[place]):
            if (
                role.name == known.name
                and visits.start[role.first] < visits.end[known.last]
                and visits.start[known.first] < visits.end[role.last]
            ):
                kept[place][number] = known._replace(
                    first=min(known.first, role.first),
                    last=max(known.last, role.last),
                    current=known.current or role.current,
                )
                return True
    return False


def _roles(roles: list[Role], visits: Visits) -> tuple[PlaceRole, ...]:
    return tuple(
        PlaceRole(
            role.name,
            int(visits.start[role.first]),
            None if role.current else int(visits.end[role.last]),
            round(role.confidence, 2),
        )
        for role in roles
    )


def _visits(
    stays: Stays,
    merged: Visits,
    number: NDArray[np.int64],
    centres: list[tuple[float, float]],
    ids: list[str | None],
) -> list[Visit]:
    # A stay belongs to the last visit that starts at or before it.
    owner = np.searchsorted(merged.start, stays.start, "right") - 1
    silent = np.bincount(owner, stays.silent, len(merged.start))
    fixes = np.bincount(owner, stays.fixes, len(merged.start))
    first = np.searchsorted(owner, np.arange(len(merged.start)))
    last = np.searchsorted(owner, np.arange(len(merged.start)), "right") - 1
    limits = bounds(stays)
    arrivals = [each[first].tolist() for each in limits[:2]]
    departures = [each[last].tolist() for each in limits[2:]]
    return [
        Visit(
            start,
            end,
            ids[place],
            centres[place][0],
            centres[place][1],
            int(silent[index]),
            int(fixes[index]),
            arrivals[0][index],
            arrivals[1][index],
            departures[0][index],
            departures[1][index],
        )
        for index, (place, start, end) in enumerate(
            zip(merged.place.tolist(), merged.start.tolist(), merged.end.tolist(), strict=True)
        )
    ]


def _trips(visits: list[Visit]) -> list[Trip]:
    if not visits:
        return []
    lats = np.array([visit.lat for visit in visits])
    lons = np.array([visit.lon for visit in visits])
    metres = distances_m(lats[:-1], lons[:-1], lats[1:], lons[1:]).tolist()
    trips = []
    for (before, after), distance in zip(pairwise(visits), metres, strict=True):
        same = before.place_id == after.place_id and before.place_id is not None
        if same or not 0 <= after.start - before.end <= TRIP_MAX_MS:
            continue
        trips.append(
            Trip(before.end, after.start, before.place_id, after.place_id, round(distance, 1))
        )
    return trips


def _local(visits: Visits, centres: list[tuple[float, float]], clock: Clock) -> Visits:
    start, end = visits.start.copy(), visits.end.copy()
    for place, (lat, lon) in enumerate(centres):
        own = visits.place == place
        start[own] += clock(lat, lon, visits.start[own])
        end[own] += clock(lat, lon, visits.end[own])
    # A change of the clock must not make a visit's length negative.
    return Visits(visits.place, start, np.maximum(start, end))


def merge_visits(stays: Stays, number: NDArray[np.int64]) -> Visits:
    """Join stays at one place that are at most half an hour apart."""
    same = number[1:] == number[:-1]
    close = stays.start[1:] - stays.end[:-1] <= MERGE_MS
    begins = np.concatenate([[True], ~(same & close)])
    first = np.flatnonzero(begins)
    last = np.concatenate([first[1:] - 1, [len(number) - 1]])
    return Visits(number[first], stays.start[first], stays.end[last])


def place_id(device: str, first_ms: int) -> str:
    """Return an id made of the device and the start of its first stay there.

    Later stays do not change it.
    """
    return hashlib.blake2b(f"{device}\0{first_ms}".encode(), digest_size=8).hexdigest()


def _days(start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    days: set[int] = set()
    for first, last in zip((start // DAY_MS).tolist(), (end // DAY_MS).tolist(), strict=True):
        days.update(range(first, last + 1))
    return len(days)
