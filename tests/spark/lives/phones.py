"""What phones report of a life: each manner of reporting, written from its description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.fixes.fixes import Fixes
from spark.places.stay_points import haversine_m
from tests.spark.lives.itinerary import DAY_MS, HOUR_MS, MINUTE_MS, Life, Spot
from waylog.great_circle import distances_m
from waylog.history.row_layout import to_units

_METRES: Final = 111_195.0
_TOKYO: Final = (35.681, 139.767)

Dice = np.random.Generator
Times = NDArray[np.int64]


def continuous(life: Life, dice: Dice, every_s: float = 90.0) -> Times:
    """A fix every one and a half minutes; now and then the phone is off for some hours."""
    count = int((life.end - life.start) / (every_s * 1000))
    time = life.start + (np.arange(count) + dice.uniform(0, 0.2, count)) * every_s * 1000
    keep = dice.random(count) > 0.01
    for _ in range(dice.poisson(life.days / 5)):
        begin = dice.uniform(life.start, life.end)
        keep &= (time < begin) | (time > begin + dice.uniform(0.4, 4) * HOUR_MS)
    return time[keep].astype(np.int64)


def periodic(life: Life, dice: Dice, every_min: float = 10.0) -> Times:
    """A fix every ten minutes, whatever happens; three in a hundred are lost."""
    step = every_min * MINUTE_MS
    time = np.arange(life.start + dice.uniform(0, step), life.end, step)
    time += dice.uniform(-0.04, 0.04, len(time)) * step
    return time[dice.random(len(time)) > 0.03].astype(np.int64)


def significant_change(life: Life, dice: Dice) -> Times:
    """An iPhone that saves its battery: a fix once it is 500 m away, five minutes apart at least,
    one soon after it arrived, and else silence.
    """
    grid = np.arange(life.start, life.end, 20_000)
    lat, lon, speed = life.at(grid)
    moving = np.flatnonzero((speed > 0.3) | (np.roll(speed, 1) > 0.3))
    times: list[float] = [life.start + dice.uniform(1, 3) * MINUTE_MS]
    at_lat, at_lon = lat[0], lon[0]
    for index in moving.tolist():
        if grid[index] - times[-1] < 5 * MINUTE_MS:
            continue
        east = (lon[index] - at_lon) * np.cos(np.radians(lat[index]))
        if _METRES * np.hypot(lat[index] - at_lat, east) >= 500:
            times.append(float(grid[index]))
            at_lat, at_lon = lat[index], lon[index]
    arrivals = [
        visit.start + dice.uniform(0.5, 4) * MINUTE_MS
        for visit in life.visits[1:]
        if visit.end - visit.start > 6 * MINUTE_MS and dice.random() < 0.98
    ]
    return np.unique(np.array([*times, *arrivals]).astype(np.int64))


def before_the_door(life: Life, dice: Dice, inside: float = 0.0) -> Times:
    """On significant change too, but the last fix comes 100 to 300 m before the door, and the next
    one when the phone is 300 to 500 m away again; between, 500 m and five minutes apart at least.
    At a share of the visits there is a fix inside, up to half an hour late.
    """
    times = [life.start + dice.uniform(1, 3) * MINUTE_MS]
    for before, after in zip(life.visits, life.visits[1:], strict=False):
        grid = np.arange(before.end, after.start, 5_000)
        lat, lon, _ = life.at(grid)
        at = list(zip(lat.tolist(), lon.tolist(), strict=True))
        left = np.flatnonzero(_away(lat, lon, life.spots[before.spot]) >= dice.uniform(300, 500))
        coming = np.flatnonzero(_away(lat, lon, life.spots[after.spot]) >= dice.uniform(100, 300))
        if len(left) and len(coming):
            told = list(left[:1])
            for index in range(left[0], coming[-1]):
                late = grid[index] - grid[told[-1]] >= 5 * MINUTE_MS
                if late and _apart(at[told[-1]], at[index]) >= 500:
                    told.append(index)
            times += grid[[*told, *coming[-1:]]].tolist()
        if after.end - after.start > 40 * MINUTE_MS and dice.random() < inside:
            times.append(after.start + dice.uniform(0.5, 30) * MINUTE_MS)
    return np.unique(np.array(times).astype(np.int64))


def _away(lat: NDArray[np.float64], lon: NDArray[np.float64], spot: Spot) -> NDArray[np.float64]:
    return distances_m(lat, lon, np.array([spot.lat]), np.array([spot.lon]))


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    return haversine_m(*one, *other)


def half_before_the_door(life: Life, dice: Dice) -> Times:
    """The same, with a fix inside at every second visit."""
    return before_the_door(life, dice, inside=0.5)


def on_motion(life: Life, dice: Dice) -> Times:
    """A fix every twenty seconds on the way, from a minute after the start until three minutes
    after the arrival; silence while still, but for a sign of life every six hours.
    """
    grid = np.arange(life.start, life.end, 20_000) + dice.integers(0, 10_000)
    keep = np.zeros(len(grid), bool)
    for before, after in zip(life.visits, life.visits[1:], strict=False):
        late = dice.uniform(0.5, 2) * MINUTE_MS
        keep |= (grid > before.end + late) & (grid < after.start + 3 * MINUTE_MS)
    signs = np.arange(life.start, life.end, 6 * HOUR_MS) + 30_000
    return np.unique(np.concatenate([grid[keep], signs])).astype(np.int64)


def half_hourly(life: Life, dice: Dice) -> Times:
    """A fix every half hour."""
    return periodic(life, dice, every_min=30.0)


def hourly(life: Life, dice: Dice) -> Times:
    """A fix every hour."""
    return periodic(life, dice, every_min=60.0)


def logger(life: Life, dice: Dice) -> Times:
    """A logger that is switched off indoors, and forgotten on every seventh way."""
    grid = np.arange(life.start, life.end, 5_000)
    keep = np.zeros(len(grid), bool)
    for before, after in zip(life.visits, life.visits[1:], strict=False):
        if dice.random() < 0.85:
            on = before.end - dice.uniform(0, 2) * MINUTE_MS
            off = after.start + dice.uniform(0.2, 2) * MINUTE_MS
            keep |= (grid > on) & (grid < off)
    return grid[keep]


def changing(life: Life, dice: Dice) -> Times:
    """Continuous for the first half, on significant change for the second."""
    half = (life.start + life.end) // 2
    first, second = continuous(life, dice), significant_change(life, dice)
    return np.concatenate([first[first < half], second[second >= half]])


MANNERS: Final[dict[str, Callable[[Life, Dice], Times]]] = {
    "continuous": continuous,
    "periodic": periodic,
    "significant change": significant_change,
    "on motion": on_motion,
    "changing": changing,
    "half-hourly": half_hourly,
    "hourly": hourly,
    "logger": logger,
    "before the door": before_the_door,
    "half before the door": half_before_the_door,
}


def report(
    life: Life, manner: str, seed: int, *, outliers: bool = False, accuracy: bool = True
) -> Fixes:
    """Return what a phone reports of a life.

    Indoors all fixes of a visit are off by the same few metres, and each by some more. With
    `outliers` a phone is "in Tokyo" for twenty minutes each night, and jumps to a mast some
    kilometres away in pairs and runs.
    """
    dice = np.random.default_rng([seed, 77, *manner.encode()])
    time = MANNERS[manner](life, dice)
    lat, lon, speed = life.at(time)
    badness = float(dice.choice([6.0, 12.0, 25.0], p=[0.5, 0.35, 0.15]))
    error = np.where(speed > 0.3, 0.7, 1.0) * badness
    starts = np.array([visit.start for visit in life.visits])
    visit = np.searchsorted(starts, time, "right") - 1
    shift = dice.normal(0, 0.8 * badness, (2, len(starts)))
    north = shift[0][visit] + dice.normal(0, 1, len(time)) * error
    east = shift[1][visit] + dice.normal(0, 1, len(time)) * error
    told = np.maximum(error * dice.lognormal(0.4, 0.3, len(time)), 3).astype(np.float32)
    lat = lat + north / _METRES
    lon = lon + east / _METRES / np.cos(np.radians(lat))
    if outliers:
        time, lat, lon, told = _with_outliers(life, dice, time, lat, lon, told)
    if not accuracy:
        told = np.full(len(time), np.nan, np.float32)
    return Fixes(time, to_units(lat), to_units((lon + 180) % 360 - 180), told)


def _with_outliers(
    life: Life,
    dice: Dice,
    time: Times,
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    told: NDArray[np.float32],
) -> tuple[Times, NDArray[np.float64], NDArray[np.float64], NDArray[np.float32]]:
    # In the night the phone is "in Tokyo" for twenty minutes: always at the same spot.
    nights = [life.wall(day, float(dice.uniform(1, 4))) for day in range(life.days)]
    for begin in nights:
        off = (time >= begin) & (time < begin + 20 * MINUTE_MS)
        if off.sum() < 2:
            # A phone that would be silent reports that it has moved.
            extra = begin + np.arange(4) * 6 * MINUTE_MS
            rows = np.searchsorted(time, extra)
            time = np.insert(time, rows, extra)
            lat, lon = np.insert(lat, rows, 0.0), np.insert(lon, rows, 0.0)
            told = np.insert(told, rows, 65.0)
            off = (time >= begin) & (time < begin + 20 * MINUTE_MS)
        lat = np.where(off, _TOKYO[0] + dice.normal(0, 8e-5, len(time)), lat)
        lon = np.where(off, _TOKYO[1] + dice.normal(0, 8e-5, len(time)), lon)
    for _ in range(dice.poisson(1.5 * (life.end - life.start) / DAY_MS)):
        # The position of a mast, for a pair of fixes or for up to a quarter of an hour. Between the
        # fixes of a phone that reports seldom there would be time to go there.
        begin = int(dice.integers(len(time)))
        end = int(np.searchsorted(time, time[begin] + dice.uniform(1, 15) * MINUTE_MS))
        end = max(end, begin + 2)
        around = time[max(begin - 1, 0) : end + 1]
        if np.diff(around).max() > 80_000 + 40_000:
            continue
        away, angle = dice.uniform(7000, 25_000) / _METRES, dice.uniform(0, 2 * np.pi)
        lat[begin:end] = lat[begin] + away * np.sin(angle)
        lon[begin:end] = lon[begin] + away * np.cos(angle) / np.cos(np.radians(lat[begin]))
        # Some phones know that they know little, others don't.
        if dice.random() < 0.3:
            told[begin:end] = 1500.0
    return time, lat, lon, told
