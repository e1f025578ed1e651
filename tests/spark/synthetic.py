"""People who live and work, after the generator of Waylog's measurements: seeded, known truth.

Monday 00:00 of the local clock (UTC+1) starts it. A local plane around Berlin, 111,195 m a degree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark.cleaning import Fixes

START_MS = 1_767_567_600_000  # Monday 2026-01-05 00:00 in Berlin
LAT, LON = 52.52, 13.405
METRES = 111_195.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@dataclass
class Person:
    """What is known about somebody, and what the phone sent."""

    home: NDArray[np.float64]  # m east, north of the origin
    work: NDArray[np.float64] | None
    favourites: list[NDArray[np.float64]]
    visited: list[int]  # visits of ten minutes or more, by favourite
    fixes: Fixes
    accuracy: NDArray[np.float64]


def degrees(point: NDArray[np.float64]) -> tuple[float, float]:
    """(lat, lon) of a point of the plane."""
    return (
        LAT + float(point[1]) / METRES,
        LON + float(point[0]) / (METRES * np.cos(np.radians(LAT))),
    )


def make_person(seed: int, days: int = 28, interval_s: float = 60.0, night: bool = False) -> Person:
    """One person; `night`: works from 22 to 6 and sleeps at home by day."""
    dice = np.random.default_rng(seed)
    places: list[NDArray[np.float64]] = []
    while len(places) < 2 + dice.integers(3, 9):
        place = dice.normal(0, 5000, 2)
        if all(np.hypot(*(place - other)) >= 400 for other in places):
            places.append(place)
    _, work, *favourites = places
    works = night or dice.random() < 0.85
    weights = 1 / np.arange(1, len(favourites) + 1) ** 1.2
    weights /= weights.sum()
    plan: list[tuple[float, float, int]] = []  # start, end, place (0 home, 1 work, 2.. favourites)
    for day in range(days):
        morning = day * DAY_S
        clock = morning
        workday = day % 7 < 5 and works
        if workday and night:
            begin = morning + 22 * HOUR_S
            plan.append((begin, begin + 8 * HOUR_S, 1))
        elif workday:
            begin = morning + 8.5 * HOUR_S + dice.normal(0, 20 * 60)
            clock = begin + (8.2 + dice.normal(0, 0.7)) * HOUR_S
            plan.append((begin, clock, 1))
        start = 18.0 if workday and not night else 10.5
        clock = max(clock, morning + start * HOUR_S)
        for _ in range(dice.poisson(0.9 if workday else 1.8)):
            begin = clock + dice.uniform(0.4, 0.8) * HOUR_S
            end = begin + max(7 * 60, np.exp(np.log(45 * 60) + 0.7 * dice.normal()))
            if end > morning + 21 * HOUR_S:
                break
            plan.append((begin, end, 2 + int(dice.choice(len(favourites), p=weights))))
            clock = end
    plan.sort()
    return _record(dice, places, plan, days, interval_s, work if works else None)


def _record(
    dice: np.random.Generator,
    places: list[NDArray[np.float64]],
    plan: list[tuple[float, float, int]],
    days: int,
    interval_s: float,
    work: NDArray[np.float64] | None,
) -> Person:
    stops = [(0.0, plan[0][0], 0)]
    for number, (begin, end, place) in enumerate(plan):
        stops.append((begin, end, place))
        until = plan[number + 1][0] if number + 1 < len(plan) else days * DAY_S
        # At home between the events of a day, unless the next follows closely.
        if until - end > 1.6 * HOUR_S:
            stops.append((end + 0.4 * HOUR_S, until - 0.4 * HOUR_S, 0))
    times: list[NDArray[np.float64]] = []
    points: list[NDArray[np.float64]] = []
    previous: tuple[float, NDArray[np.float64]] | None = None
    for number, (begin, end, place) in enumerate(stops):
        spot = places[place]
        if previous is not None:
            # Walks up to 1.5 km, then drives; leaves so as to arrive in time.
            way = 1.3 * float(np.hypot(*(spot - previous[1])))
            takes = way / (1.4 if way < 1500 else dice.uniform(5, 12))
            moving = np.arange(max(begin - takes, previous[0]), begin, min(interval_s, 30.0))
            share = ((moving - begin + takes) / max(takes, 1.0))[:, None]
            bend = (previous[1] + spot) / 2 + dice.normal(0, 300, 2)
            times.append(moving)
            points.append(
                (1 - share) ** 2 * previous[1] + 2 * share * (1 - share) * bend + share**2 * spot
            )
        if number + 1 < len(stops):
            following = stops[number + 1]
            way = 1.3 * float(np.hypot(*(places[following[2]] - spot)))
            # Leaves in time for the next place, at the slowest speed.
            leaves = max(end, following[0] - way / (1.4 if way < 1500 else 5))
        else:
            leaves = end
        every = interval_s * (6 if dice.random() < 1 / 3 else 1)
        staying = np.arange(begin, leaves, every)
        times.append(staying)
        points.append(np.tile(spot, (len(staying), 1)))
        previous = (leaves, spot)
    time, where = np.concatenate(times), np.concatenate(points)
    noise = np.zeros_like(where)
    sigma = dice.choice([6.0, 15.0, 35.0], p=[0.6, 0.3, 0.1])
    steps = dice.normal(0, sigma * np.sqrt(1 - 0.9**2), where.shape)
    for number in range(1, len(where)):
        noise[number] = 0.9 * noise[number - 1] + steps[number]
    where = where + noise
    spikes = dice.random(len(time)) < 0.001
    angle = dice.uniform(0, 2 * np.pi, int(spikes.sum()))
    where[spikes] += dice.uniform(1000, 5000, len(angle))[:, None] * np.column_stack(
        [np.cos(angle), np.sin(angle)]
    )
    keep = dice.random(len(time)) >= 0.01
    for _ in range(dice.poisson(days / 3)):
        gap = dice.uniform(0, days * DAY_S)
        keep &= (time < gap) | (time > gap + dice.uniform(1, 6) * HOUR_S)
    order = np.flatnonzero(keep)
    order = np.sort(np.concatenate([order, order[dice.random(len(order)) < 0.005]]))
    time, where = time[order], where[order]
    visited = [
        sum(1 for begin, end, place in plan if place == number and end - begin >= 600)
        for number in range(2, len(places))
    ]
    fixes = Fixes(
        START_MS + (time * 1000).astype(np.int64),
        LAT + where[:, 1] / METRES,
        LON + where[:, 0] / (METRES * np.cos(np.radians(LAT))),
    )
    accuracy = np.where(spikes[order], 20.0, np.nan)
    return Person(places[0], work, list(places[2:]), visited, fixes, accuracy)
