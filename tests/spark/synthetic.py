"""Synthetic people with known places and visits, from seeds; after Waylog's measurement generator.

Time starts on Monday 00:00 local time (UTC+1). Positions are on a local plane around Berlin, with
111,195 m per degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import Fixes
from waylog.history.row_layout import to_units

START_MS = 1_767_567_600_000  # Monday 2026-01-05 00:00 in Berlin
LAT, LON = 52.52, 13.405
METRES = 111_195.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S

Point = NDArray[np.float64]  # m east, north of the origin


class Profile(NamedTuple):
    """The properties of a group of people and of their phones."""

    spread_m: float
    apart_m: float  # minimum distance between two places of one person
    works: float  # share of the people who work
    interval_s: float  # between two fixes at rest
    sigma_m: tuple[float, float, float]
    shares: tuple[float, float, float]  # shares of phones with these sigmas


BASE: Final = Profile(5000, 400, 0.85, 60, (6, 15, 35), (0.6, 0.3, 0.1))
HARD: Final = Profile(1500, 150, 0.60, 120, (8, 20, 50), (0.5, 0.3, 0.2))


class Visit(NamedTuple):
    """A true visit, from `start` to `end` (ms UTC)."""

    start: int
    end: int
    place: int  # 0 home, 1 work, 2.. favourites


@dataclass
class Person:
    """A person: the true places and visits, and the fixes of the phone."""

    places: list[Point]
    works: bool
    visits: list[Visit]
    fixes: Fixes

    @property
    def home(self) -> Point:
        return self.places[0]

    @property
    def work(self) -> Point | None:
        return self.places[1] if self.works else None


def degrees(point: Point) -> tuple[float, float]:
    """Return (lat, lon) of a point of the plane."""
    return (
        LAT + float(point[1]) / METRES,
        LON + float(point[0]) / (METRES * np.cos(np.radians(LAT))),
    )


def make_person(
    seed: int,
    days: int = 28,
    profile: Profile = BASE,
    night: bool = False,
    interval_s: float | None = None,
) -> Person:
    """Return one person; with `night`, one who works from 22:00 to 6:00 and sleeps by day."""
    dice = np.random.default_rng(seed)
    places: list[Point] = []
    wanted = 2 + int(dice.integers(3, 9))
    while len(places) < wanted:
        place = dice.normal(0, profile.spread_m, 2)
        if all(np.hypot(*(place - other)) >= profile.apart_m for other in places):
            places.append(place)
    works = night or bool(dice.random() < profile.works)
    journey = _Journey(dice, places, interval_s or profile.interval_s)
    for day in range(days):
        _live(journey, day, works, night)
    journey.stay_until(days * DAY_S)
    fixes = _measure(dice, journey, days, profile)
    visits = [
        Visit(START_MS + round(start * 1000), START_MS + round(end * 1000), place)
        for start, end, place in journey.visits
    ]
    return Person(places, works, visits, fixes)


class _Journey:
    """A movement from place to place, which leaves fixes."""

    def __init__(self, dice: np.random.Generator, places: list[Point], interval_s: float) -> None:
        self._dice = dice
        self._places = places
        self._interval_s = interval_s
        self.place = 0
        self.clock = 0.0
        self.visits: list[tuple[float, float, int]] = []
        self.times: list[Point] = []
        self.points: list[Point] = []

    def takes(self, place: int) -> float:
        """Return the seconds to a place: on foot up to 1.5 km, beyond that by vehicle."""
        straight = float(np.hypot(*(self._places[place] - self._places[self.place])))
        speed = self._dice.uniform(5, 12) if straight > 1500 else 1.4
        return 1.3 * straight / speed

    def stay_until(self, end: float) -> None:
        """Stay at the current place until `end`."""
        if end <= self.clock:
            return
        every = self._interval_s * (6 if self._dice.random() < 1 / 3 else 1)
        times = np.arange(self.clock, end, every)
        self.times.append(times)
        self.points.append(np.tile(self._places[self.place], (len(times), 1)))
        if self.visits and self.visits[-1][1:] == (self.clock, self.place):
            self.visits[-1] = (self.visits[-1][0], end, self.place)
        else:
            self.visits.append((self.clock, end, self.place))
        self.clock = end

    def go(self, place: int, seconds: float) -> None:
        """Travel to a place."""
        start, goal = self._places[self.place], self._places[place]
        times = np.arange(self.clock, self.clock + seconds, min(self._interval_s, 30.0))
        share = ((times - self.clock) / seconds)[:, None]
        bend = (start + goal) / 2 + self._dice.normal(0, 300, 2)
        self.times.append(times)
        self.points.append(
            (1 - share) ** 2 * start + 2 * share * (1 - share) * bend + share**2 * goal
        )
        self.clock += seconds
        self.place = place

    def visit(self, place: int, arrive: float, dwell: float) -> None:
        """Leave in time for `arrive` if possible, then stay for `dwell`."""
        if place != self.place:
            seconds = self.takes(place)
            self.stay_until(arrive - seconds)
            self.go(place, seconds)
        self.stay_until(max(self.clock, arrive) + dwell)


def _live(journey: _Journey, day: int, works: bool, night: bool) -> None:
    dice, morning = journey._dice, day * DAY_S
    weekday = day % 7 < 5
    favourites = len(journey._places) - 2
    weights = 1 / np.arange(1, favourites + 1) ** 1.2
    weights /= weights.sum()
    if weekday and works and not night:
        begin = morning + 8.5 * HOUR_S + dice.normal(0, 20 * 60)
        journey.visit(1, begin, (8.2 + dice.normal(0, 0.7)) * HOUR_S)
    clock = morning + (18.0 if weekday and not night else 10.5) * HOUR_S
    for _ in range(dice.poisson(0.9 if weekday else 1.8)):
        begin = max(clock, journey.clock + journey.takes(0)) + dice.uniform(0.1, 0.6) * HOUR_S
        dwell = max(7 * 60.0, float(np.exp(np.log(45 * 60) + 0.7 * dice.normal())))
        choice = 2 + int(dice.choice(favourites, p=weights))
        if choice == journey.place:
            choice = 2 + (choice - 1) % favourites
        journey.visit(choice, begin, dwell)
        clock = journey.clock
        if clock > morning + 21 * HOUR_S:
            break
        if dice.random() < 0.3:
            journey.visit(0, clock, dice.uniform(0.5, 1.5) * HOUR_S)
    if journey.place != 0:
        journey.go(0, journey.takes(0))
    if weekday and night:
        journey.visit(1, max(journey.clock, morning + 22 * HOUR_S), 8 * HOUR_S)
        journey.go(0, journey.takes(0))


def _measure(dice: np.random.Generator, journey: _Journey, days: int, profile: Profile) -> Fixes:
    time, where = np.concatenate(journey.times), np.concatenate(journey.points)
    sigma = dice.choice(profile.sigma_m, p=profile.shares)
    steps = dice.normal(0, sigma * np.sqrt(1 - 0.9**2), where.shape)
    # A first-order autoregression; the effect of a step has vanished after 200 steps.
    decay = 0.9 ** np.arange(200)
    for axis in range(2):
        where[:, axis] += np.convolve(steps[:, axis], decay)[: len(where)]
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
    return Fixes(
        START_MS + np.round(time * 1000).astype(np.int64),
        to_units(LAT + where[:, 1] / METRES),
        to_units(LON + where[:, 0] / (METRES * np.cos(np.radians(LAT)))),
        np.full(len(time), np.nan, np.float32),
    )
