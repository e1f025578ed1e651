"""Trips computed another way: a search for stays over the whole track, then sums by seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

RADIUS = 6_371_008.8


class Spot(NamedTuple):
    time: int  # ms
    lat: float
    lon: float
    accuracy: float = 10.0


class FoundTrip(NamedTuple):
    start: int
    end: int
    metres: float
    moving_ms: float


def metres(one: Spot, other: Spot) -> float:
    """Return the distance by the chord between two vectors."""
    return 2 * RADIUS * math.asin(min(1.0, math.dist(_vector(one), _vector(other)) / 2))


@lru_cache(100_000)
def _vector(spot: Spot) -> tuple[float, float, float]:
    phi, turn = math.radians(spot.lat), math.radians(spot.lon)
    return math.cos(phi) * math.cos(turn), math.cos(phi) * math.sin(turn), math.sin(phi)


def pieces(spots: Sequence[Spot], silence_ms: int, fastest: float) -> list[list[Spot]]:
    """Divide a track at silences; leave out jumps."""
    found: list[list[Spot]] = []
    for spot in spots:
        if not found or spot.time - found[-1][-1].time > silence_ms:
            found.append([spot])
        elif metres(found[-1][-1], spot) * 1000 <= fastest * (spot.time - found[-1][-1].time):
            found[-1].append(spot)
    return found


def stays(piece: Sequence[Spot], radius: float, stay_ms: int) -> list[tuple[int, int]]:
    """Return the indexes of the first and the last spot of all stays; the first spot begins one.

    The last one ends with the piece, if it is long enough or not: nothing comes after it.
    """
    found = []
    anchor = 0
    while anchor < len(piece):
        after = anchor + 1
        while after < len(piece) and (
            metres(piece[anchor], piece[after]) - piece[after].accuracy <= radius
        ):
            after += 1
        if anchor == 0 or after == len(piece) or (
            piece[after - 1].time - piece[anchor].time >= stay_ms
        ):  # fmt: skip
            found.append((anchor, after - 1))
        anchor = after
    return found


def trips(
    spots: Sequence[Spot],
    zone: str = "UTC",
    *,
    radius: float = 100.0,
    stay_ms: int = 300_000,
    silence_ms: int = 900_000,
    step: float = 10.0,
    minimum: float = 300.0,
    slowest: float = 0.5,
    fastest: float = 400 / 3.6,
) -> tuple[list[FoundTrip], dict[str, list[float]]]:
    """Return the trips, and by date: number of trips, metres, moving ms, and unseen metres.

    What goes on at the end of the track is counted as far as its last anchor.
    """
    found: list[FoundTrip] = []
    days: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])

    def date(time: float) -> str:
        return datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).date().isoformat()

    parts = pieces(spots, silence_ms, fastest)
    for left_behind, piece in pairwise(parts):
        gone = metres(left_behind[-1], piece[0])
        if gone - left_behind[-1].accuracy - piece[0].accuracy > radius:
            days[date(piece[0].time)][3] += gone
    for piece in parts:
        rests = stays(piece, radius, stay_ms)
        for (anchor, left), (arrived, _) in pairwise(rests):
            origin = piece[anchor]._replace(time=piece[left].time)
            if max(metres(origin, each) for each in _anchors(piece, left + 1, arrived, radius)) < (
                minimum
            ):
                continue
            way = [piece[left], *piece[left + 1 : arrived + 1]]
            counted = [(origin, way[0])]  # each with the fix before it
            for before, spot in pairwise(way):
                roughly = counted[-1][0].accuracy + spot.accuracy
                if metres(counted[-1][0], spot) > max(step, roughly):
                    counted.append((spot, before))
            length = moving = 0.0
            for (one, _), (other, before) in pairwise(counted):
                apart = metres(one, other)
                ms = sum(
                    min(second.time - first.time, metres(first, second) * 1000 / slowest)
                    for first, second in ((one, before), (before, other))
                    if second.time > first.time
                )
                length += apart
                moving += ms
                seconds = np.arange(one.time, other.time, 1000)  # one after the other
                for second in seconds.tolist():
                    share = min(1000, other.time - second) / (other.time - one.time)
                    days[date(second)][1] += apart * share
                    days[date(second)][2] += ms * share
            days[date(origin.time)][0] += 1
            found.append(FoundTrip(origin.time, piece[arrived].time, length, moving))
    return found, dict(days)


def _anchors(piece: Sequence[Spot], begin: int, end: int, radius: float) -> list[Spot]:
    """Return the anchors on the way from one stay to the next."""
    found = [piece[begin]]
    for spot in piece[begin + 1 : end + 1]:
        if metres(found[-1], spot) - spot.accuracy > radius:
            found.append(spot)
    return found


def comparable(found: tuple[list[FoundTrip], dict[str, list[float]]]) -> Any:
    trips_found, days = found
    return (
        [(each.start, each.end) for each in trips_found],
        [(each.metres, each.moving_ms) for each in trips_found],
        {day: values for day, values in sorted(days.items()) if any(values)},
    )
