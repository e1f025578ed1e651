"""The choice of a device's home and work places, by the local hours spent there."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS

HOME: Final = "home"
WORK: Final = "work"

_WEEK_HOURS: Final = 168

# Home: the place with the most time between 22:00 and 6:00, in at least three nights.
_NIGHT_START_H: Final = 22
_NIGHT_HOURS: Final = 8
_NIGHTS_MIN: Final = 3
_NIGHTS_SURE: Final = 14
# A night counts for a place if at least an hour of it was spent there.
_NIGHT_MIN_MS: Final = HOUR_MS

# Work: the place with the most time on weekdays between 9:00 and 17:00, on at least three days and
# with at least this share of those hours. Without the share, people who are at home by day would be
# given a work place.
_WORK_START_H: Final = 9
_WORK_HOURS: Final = 8
_WORK_DAYS_MIN: Final = 3
_DAYS_SURE: Final = 10
_WORK_SHARE_MIN: Final = 0.15
# People without work have favourites in those hours as well, but do not stay there for hours.
_WORK_DAY_MEAN_MS: Final = 2 * HOUR_MS
_WORKDAYS: Final = 5

# A night shift: the place of the nights is hardly used otherwise, and another place is used more.
_NIGHT_SHIFT_SHARE: Final = 0.6
_NIGHT_SHIFT_FACTOR: Final = 1.2

# 1970-01-01 was a Thursday.
_TO_MONDAY_MS: Final = 3 * DAY_MS


class Label(NamedTuple):
    """The label of a place, and its confidence (0..1)."""

    name: str
    confidence: float


class Visits(NamedTuple):
    """Visits of one device, in local time."""

    place: NDArray[np.int64]  # number of the place, from 0
    start: NDArray[np.int64]  # ms of the local clock
    end: NDArray[np.int64]


def night_ms(time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the time between 22:00 and 6:00 from the epoch to `time`.

    The difference of two results is the time of an interval.
    """
    shifted = time + (24 - _NIGHT_START_H) * HOUR_MS
    result: NDArray[np.int64] = shifted // DAY_MS * (_NIGHT_HOURS * HOUR_MS) + np.minimum(
        shifted % DAY_MS, _NIGHT_HOURS * HOUR_MS
    )
    return result


def workday_ms(time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the time between 9:00 and 17:00, Monday to Friday, from the epoch to `time`."""
    shifted = time + _TO_MONDAY_MS
    week, within = shifted // WEEK_MS, shifted % WEEK_MS
    day, clock = within // DAY_MS, within % DAY_MS
    hours = _WORK_HOURS * HOUR_MS
    today = np.clip(clock - _WORK_START_H * HOUR_MS, 0, hours)
    within_week = np.where(day < _WORKDAYS, day * hours + today, _WORKDAYS * hours)
    result: NDArray[np.int64] = week * (_WORKDAYS * hours) + within_week
    return result


def weekly_profile(start: NDArray[np.int64], end: NDArray[np.int64]) -> list[int]:
    """Return the minutes in each hour of the local week, from Monday 0:00."""
    minutes = np.zeros(_WEEK_HOURS)
    for begin, finish in zip(
        (start + _TO_MONDAY_MS).tolist(), (end + _TO_MONDAY_MS).tolist(), strict=True
    ):
        # Whole weeks fill every hour; the rest touches at most 169 hours.
        weeks, rest = divmod(finish - begin, WEEK_MS)
        minutes += 60.0 * weeks
        edges = np.arange(begin // HOUR_MS, (begin + rest) // HOUR_MS + 2) * HOUR_MS
        spent = np.diff(np.clip(edges, begin, begin + rest)) / 60_000
        np.add.at(minutes, edges[:-1] // HOUR_MS % _WEEK_HOURS, spent)
    return [round(each) for each in minutes.tolist()]


def label_places(visits: Visits, count: int) -> dict[int, Label]:
    """Return the labels of the home and work places, out of `count`; both may be missing."""
    if not count:
        return {}
    dwell = _by_place(visits, visits.end - visits.start, count)
    at_night = _by_place(visits, night_ms(visits.end) - night_ms(visits.start), count)
    at_work_hours = _by_place(visits, workday_ms(visits.end) - workday_ms(visits.start), count)
    home = int(np.argmax(at_night))
    nights = _nights(visits, home)
    if nights < _NIGHTS_MIN:
        return _with_work({}, visits, at_work_hours)
    # Full confidence needs two weeks of nights that were all spent there.
    sure = float(at_night[home] / at_night.sum()) * min(1.0, nights / _NIGHTS_SURE)
    busiest = int(np.argmax(dwell))
    if (
        busiest != home
        and at_night[home] >= _NIGHT_SHIFT_SHARE * dwell[home]
        and dwell[busiest] > _NIGHT_SHIFT_FACTOR * dwell[home]
    ):
        return {busiest: Label(HOME, sure), home: Label(WORK, sure)}
    return _with_work({home: Label(HOME, sure)}, visits, at_work_hours)


def _with_work(
    labels: dict[int, Label], visits: Visits, at_work_hours: NDArray[np.float64]
) -> dict[int, Label]:
    candidates = at_work_hours.copy()
    for place in labels:
        candidates[place] = -1
    work = int(np.argmax(candidates))
    observed = _workdays(visits.start, visits.end)
    if work in labels or not len(observed):
        return labels
    share = float(candidates[work]) / (len(observed) * _WORK_HOURS * HOUR_MS)
    if share < _WORK_SHARE_MIN:
        return labels
    own = visits.place == work
    worked = workday_ms(visits.end[own]) - workday_ms(visits.start[own]) > 0
    days = _workdays(visits.start[own][worked], visits.end[own][worked])
    if len(days) >= _WORK_DAYS_MIN and candidates[work] >= _WORK_DAY_MEAN_MS * len(days):
        # Full confidence needs most of the working hours of two weeks.
        labels[work] = Label(WORK, min(1.0, 1.5 * share) * min(1.0, len(days) / _DAYS_SURE))
    return labels


def _by_place(visits: Visits, amount: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    return np.bincount(visits.place, amount, count).astype(np.float64)


def _nights(visits: Visits, place: int) -> int:
    """Return the number of different nights in which an hour or more was spent at a place."""
    own = visits.place == place
    spent: dict[int, int] = {}
    shift = (24 - _NIGHT_START_H) * HOUR_MS
    for start, end in zip(visits.start[own].tolist(), visits.end[own].tolist(), strict=True):
        for night in range((start + shift) // DAY_MS, (end + shift) // DAY_MS + 1):
            begin = night * DAY_MS - shift
            overlap = min(end, begin + _NIGHT_HOURS * HOUR_MS) - max(start, begin)
            spent[night] = spent.get(night, 0) + max(0, overlap)
    return sum(each >= _NIGHT_MIN_MS for each in spent.values())


def _workdays(start: NDArray[np.int64], end: NDArray[np.int64]) -> set[int]:
    """Return the weekdays (Monday to Friday) that some intervals touch, as days since the epoch."""
    days: set[int] = set()
    first, last = start // DAY_MS, end // DAY_MS
    for begin, finish in zip(first.tolist(), last.tolist(), strict=True):
        days.update(range(begin, finish + 1))
    return {day for day in days if (day + 3) % 7 < _WORKDAYS}
