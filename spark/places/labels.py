"""What places are to a person: homes and workplaces, from when to when.

No office hours are assumed. A person lives where the days are based: where most of the time
from noon to noon is spent, nights a little more than other hours. Who works at night is at home by
day. A base counts as a home if it is one again and again, or for good; a journey is neither. Work
is where one comes regularly: at the same hour (of the weekday, or of the shift of the week), for
as long each time, and for hours; never where one sleeps. Once a week that may be a friend: a job
lasts all day, or begins in the morning. A place that stops being one keeps the days on which it
was.
"""

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

# Nights, from 22:00 to 6:00, count this much more than other hours for where a day is based, which
# takes three hours.
_NIGHT_START_H: Final = 22
_NIGHT_HOURS: Final = 8
_NIGHT_EXTRA: Final = 0.5
_BASE_MIN_MS: Final = 3 * HOUR_MS

# Who stays for longer (hours) sleeps there.
_NIGHT_SHIFT_HOURS_MAX: Final = 10.5

# Absent for more days than this, a place is another one when it comes back: a new epoch.
_EPOCH_DAYS: Final = 28
# A home is the base of this many days, and of this share of the days of its epoch.
_HOME_DAYS_MIN: Final = 3
_HOME_SHARE_MIN: Final = 0.17
# Somebody who has a home and now sleeps elsewhere has moved after this many days, if places that
# were visited before still are; else it may be a journey, which is seldom longer than two weeks.
# One that ended was a journey if it was shorter than the last number.
_MOVED_DAYS: Final = 10
_AWAY_DAYS: Final = 15
_KNOWN_VISITS: Final = 2
_JOURNEY_DAYS: Final = 45
_JOURNEY_SHARE: Final = 0.8
# A home that was left for another ends after this many days, and so many times its usual absence.
_LEFT_DAYS: Final = 10
_LEFT_ABSENCES: Final = 4.0
# The confidence of a home grows with its days, by this constant.
_HOME_DAYS_SURE: Final = 4.0
_SECOND_HOME: Final = 0.92

# Work: on three days at least, and not where more than this share of its days is based.
_WORK_DAYS_MIN: Final = 3
_WORK_DAYS_SURE: Final = 5
_WORK_BASE_MAX: Final = 0.2
# Each trait counts from nothing at the first number to fully at the second: hours a day, hours by
# which arrivals vary, share by which lengths vary, days a week.
_WORK_HOURS: Final = (3.0, 5.5)
_WORK_ARRIVAL_H: Final = (1.5, 0.6)
_WORK_LENGTH: Final = (0.4, 0.1)
_WORK_DAYS_A_WEEK: Final = (1.0, 2.0)
# On one day a week friends are visited as well, at the same hour, for an afternoon. The hours for
# one day in a usual week, rather than two, unless they begin early (hour of the day).
_WEEKLY_DAYS: Final = (2.0, 1.0)
_WEEKLY_HOURS: Final = (6.5, 7.75)
_WEEKLY_EARLY_H: Final = (10.5, 9.0)
_WEEKLY_EARLIEST_H: Final = 2.0
# Their weights in the logit of the probability that a place is work.
_WORK_LOGIT: Final = -5.55
_WORK_LOGITS: Final = (4.0, 1.75, 1.25, 1.9)
_WORK_DAY_LOGIT: Final = 0.4  # for each day that is missing
# Arrivals say nothing within groups, such as days of the week, that have less than this share to
# compare.
_COMPARED_SHARE: Final = 0.6
_WORK_MIN: Final = 0.65
# A job ends after this many days without it if another began, or after the second number.
_JOB_CHANGED_DAYS: Final = 9
_JOB_LEFT_DAYS: Final = 35

# 1970-01-01 was a Thursday.
_TO_MONDAY_MS: Final = 3 * DAY_MS


class Role(NamedTuple):
    """What a place was from one visit to another."""

    name: str
    confidence: float  # 0..1
    first: int  # number of the first visit of that time
    last: int  # and of the last one
    current: bool


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


def weekly_profile(start: NDArray[np.int64], end: NDArray[np.int64]) -> list[int]:
    """Return the minutes in each hour of the local week, from Monday 0:00."""
    begin = start + _TO_MONDAY_MS
    # Whole weeks fill every hour; the rest touches at most 169 hours.
    weeks, rest = (end - start) // WEEK_MS, (end - start) % WEEK_MS
    first = begin // HOUR_MS
    hours = (begin + rest) // HOUR_MS - first + 1
    row = np.repeat(np.arange(len(start)), hours)
    hour = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(hours) - hours, hours)
    spent = np.minimum(begin[row] + rest[row], (hour + 1) * HOUR_MS)
    spent -= np.maximum(begin[row], hour * HOUR_MS)
    minutes = np.bincount(hour % _WEEK_HOURS, spent / 60_000, _WEEK_HOURS) + 60.0 * weeks.sum()
    result: list[int] = np.rint(minutes).astype(np.int64).tolist()
    return result


def label_places(visits: Visits, count: int) -> dict[int, list[Role]]:
    """Return the roles of places, out of `count`, in the order of time; most have none.

    O(n log n) time for n visits and days.
    """
    if not count or not len(visits.place):
        return {}
    spent = _spent(visits, count)
    days, bases = _bases(spent)
    bases = _without_night_shifts(visits, spent, days, bases)
    homes = _homes(visits, days, bases)
    works = _works(visits, count, bases, {epoch.place for epoch in homes})
    roles: dict[int, list[Role]] = {}
    for epoch in sorted([*homes, *works], key=lambda each: each.first):
        own = np.flatnonzero(visits.place == epoch.place)
        # Days from noon to noon, with an hour's grace for who comes home late.
        first = int(np.searchsorted(visits.end[own], epoch.first * DAY_MS + DAY_MS // 2, "right"))
        last = int(np.searchsorted(visits.start[own], (epoch.last + 1) * DAY_MS + DAY_MS // 2))
        if first < last:
            role = Role(
                epoch.label, epoch.confidence, int(own[first]), int(own[last - 1]), epoch.current
            )
            roles.setdefault(epoch.place, []).append(role)
    return roles


class _Epoch(NamedTuple):
    place: int
    label: str
    first: int  # day
    last: int
    confidence: float
    current: bool


class _Spent(NamedTuple):
    """The time that was spent at places by day, from noon to noon; ascending by day and place."""

    day: NDArray[np.int64]
    place: NDArray[np.int64]
    time: NDArray[np.float64]  # ms


def _spent(visits: Visits, count: int) -> _Spent:
    """Return the time by day and place, in which nights count a little more."""
    noon = DAY_MS // 2
    first, last = (visits.start - noon) // DAY_MS, (visits.end - 1 - noon) // DAY_MS
    lengths = np.maximum(last - first + 1, 1)
    row = np.repeat(np.arange(len(first)), lengths)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    day = first[row] + offset
    begin = np.maximum(visits.start[row], day * DAY_MS + noon)
    end = np.maximum(np.minimum(visits.end[row], (day + 1) * DAY_MS + noon), begin)
    amount = (end - begin) + _NIGHT_EXTRA * (night_ms(end) - night_ms(begin))
    key, inverse = np.unique(day * count + visits.place[row], return_inverse=True)
    return _Spent(key // count, key % count, np.bincount(inverse, amount).astype(np.float64))


def _bases(spent: _Spent) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return days and the place where each is based."""
    order = np.lexsort((spent.time, spent.day))
    top = order[np.flatnonzero(np.diff(spent.day[order], append=np.iinfo(np.int64).max))]
    top = top[spent.time[top] >= _BASE_MIN_MS]
    return spent.day[top], spent.place[top]


def _without_night_shifts(
    visits: Visits, spent: _Spent, days: NDArray[np.int64], bases: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the bases, where night shifts after a day with many errands are days at home."""
    if not len(bases):
        return bases
    home = int(np.argmax(np.bincount(bases)))
    at_home = spent.day[(spent.place == home) & (spent.time >= _BASE_MIN_MS)]
    result = bases.copy()
    for place in np.unique(bases[bases != home]).tolist():
        own = visits.place == place
        shifts = _shifts(visits.start[own], visits.end[own])
        if (
            len(shifts) >= _WORK_DAYS_MIN
            and np.median(shifts[:, 2]) <= _NIGHT_SHIFT_HOURS_MAX
            and _work_probability(shifts) >= _WORK_MIN
        ):
            result[(bases == place) & np.isin(days, at_home)] = home
    return result


def _epochs(days: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut ascending days where the pause between two is long."""
    return np.split(days, np.flatnonzero(np.diff(days) > _EPOCH_DAYS) + 1)


def _homes(visits: Visits, days: NDArray[np.int64], bases: NDArray[np.int64]) -> list[_Epoch]:
    if not len(days):
        return []
    main = int(np.argmax(np.bincount(bases)))
    # Positions among the days that are known: a phone that is off is nowhere.
    found: list[tuple[int, NDArray[np.int64]]] = []
    for place in np.unique(bases).tolist():
        rows = np.flatnonzero(bases == place)
        for part in _epochs(days[rows]):
            own = np.searchsorted(days, part)
            familiar = _sees_known_places(
                visits, int(part[0]), int(part[-1]) + 1, set(bases[: own[0]].tolist())
            )
            moved_days = _MOVED_DAYS if familiar else _AWAY_DAYS
            if _is_home(own, bases, place, main, moved_days):
                found.append((place, own))
    longest = max((len(own) for _, own in found), default=0)
    homes = []
    for place, own in found:
        share = len(own) / (own[-1] - own[0] + 1)
        sure = 1.0 - 0.5 * float(np.exp(-len(own) / _HOME_DAYS_SURE))
        sure *= 1.0 if share >= 0.5 or len(own) == longest else _SECOND_HOME
        absent = len(days) - 1 - int(own[-1])
        left = absent > max(_LEFT_DAYS, _LEFT_ABSENCES / share) and any(
            each[-1] > own[-1] and place != other for other, each in found
        )
        homes.append(
            _Epoch(place, HOME, int(days[own[0]]), int(days[own[-1]]), min(sure, 0.99), not left)
        )
    return homes


def _sees_known_places(visits: Visits, first: int, end: int, bases: set[int]) -> bool:
    """Tell whether places that were visited before some days, and not slept at, were so in them."""
    begin, finish = (day * DAY_MS + DAY_MS // 2 for day in (first, end))
    before = visits.place[visits.end <= begin]
    during = visits.place[(visits.start >= begin) & (visits.end <= finish)]
    known = np.isin(during, np.setdiff1d(before, np.array(list(bases), np.int64)))
    return int(known.sum()) >= _KNOWN_VISITS


def _is_home(
    own: NDArray[np.int64],
    bases: NDArray[np.int64],
    place: int,
    main: int,
    moved_days: int,
) -> bool:
    """Tell whether the days `own`, as positions among all days, make a place a home."""
    if len(own) < _HOME_DAYS_MIN:
        return False
    before, after = bases[: own[0]], bases[own[-1] + 1 :]
    if len(own) / (own[-1] - own[0] + 1) < _HOME_SHARE_MIN:
        return False
    runs = int((np.diff(own) > 1).sum()) + 1
    if place == main:
        return True
    if not len(before):
        # The first home that is known, or a journey that one came back from.
        return runs > 1 or len(own) >= _MOVED_DAYS
    if not len(after):
        return runs > 2 or len(own) >= moved_days
    span = int(own[-1] - own[0]) + 1
    if before[-1] == after[0] and len(own) >= _JOURNEY_SHARE * span:
        return span > _JOURNEY_DAYS
    # Bases of several journeys are not many in all.
    return runs > 2 or len(own) >= moved_days


def _works(
    visits: Visits,
    count: int,
    bases: NDArray[np.int64],
    homes: set[int],
) -> list[_Epoch]:
    based = np.bincount(bases, minlength=count)
    long = np.bincount(visits.place, visits.end - visits.start, count)
    end = int(visits.end.max() // DAY_MS)
    found: list[tuple[int, NDArray[np.int64], float]] = []
    for place in np.flatnonzero(long >= _WORK_DAYS_MIN * _WORK_HOURS[0] * HOUR_MS).tolist():
        if place in homes:
            continue
        own = visits.place == place
        shifts = _shifts(visits.start[own], visits.end[own])
        if based[place] > _WORK_BASE_MAX * len(shifts):
            continue
        cuts = np.flatnonzero(np.diff(shifts[:, 0]) > _EPOCH_DAYS) + 1
        for part in np.split(shifts, cuts):
            if len(part) >= _WORK_DAYS_MIN:
                probability = _work_probability(part)
                if probability >= _WORK_MIN:
                    found.append((place, part[:, 0].astype(np.int64), probability))
    works = []
    for place, worked, probability in found:
        absent = end - int(worked[-1])
        changed = any(
            each[0] > worked[-1] - _JOB_CHANGED_DAYS and each[-1] > worked[-1] and other != place
            for other, each, _ in found
        )
        current = absent <= (_JOB_CHANGED_DAYS if changed else _JOB_LEFT_DAYS)
        works.append(_Epoch(place, WORK, int(worked[0]) - 1, int(worked[-1]), probability, current))
    return works


def _shifts(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the day, the hour of arrival and the hours of each shift.

    Visits with less than six hours between them are one, with a break: nobody sleeps in that time.
    """
    pause = start[1:] - end[:-1]
    first = np.concatenate([[0], np.flatnonzero(pause >= 6 * HOUR_MS) + 1])
    hours = np.add.reduceat(end - start, first) / HOUR_MS
    return np.stack([start[first] // DAY_MS, start[first] % DAY_MS / HOUR_MS, hours], axis=1)


def _work_probability(shifts: NDArray[np.float64]) -> float:
    """Return how likely it is that somebody works where these shifts are spent."""
    day, arrival, hours = shifts[:, 0], shifts[:, 1], shifts[:, 2]
    length = float(np.median(hours))
    if length <= _WORK_HOURS[0]:
        return 0.0  # whatever the other traits
    spread = float(np.median(np.abs(hours - length))) / max(length, 0.1)
    weekday, week = (day + 3) % 7, (day + 3) // 7
    varies = min(_variation(arrival, groups) for groups in (np.zeros(len(day)), weekday, week))
    a_week = min((len(day) - 1) * 7 / max(day[-1] - day[0], 1.0), len(day))
    low, high = _hours_of_work(_usual_days(week), float(np.median(arrival)))
    traits = (
        _between(length, low, high),
        _between(varies, *_WORK_ARRIVAL_H),
        _between(spread, *_WORK_LENGTH),
        _between(a_week, *_WORK_DAYS_A_WEEK),
    )
    logit = _WORK_LOGIT + sum(
        weight * trait for weight, trait in zip(_WORK_LOGITS, traits, strict=True)
    )
    logit -= _WORK_DAY_LOGIT * max(_WORK_DAYS_SURE - len(day), 0)
    return float(1 / (1 + np.exp(-logit)))


def _usual_days(week: NDArray[np.float64]) -> float:
    """Return on how many days of a usual week somebody came."""
    return float(np.median(np.bincount((week - week[0]).astype(np.int64))))


def _hours_of_work(days: float, arrival: float) -> tuple[float, float]:
    """Return from how many hours a day a place may be work, and from how many it is."""
    early = _between(arrival, *_WEEKLY_EARLY_H) if arrival >= _WEEKLY_EARLIEST_H else 0.0
    weekly = _between(days, *_WEEKLY_DAYS) * (1 - early)
    low, high = (
        other + weekly * (once - other)
        for other, once in zip(_WORK_HOURS, _WEEKLY_HOURS, strict=True)
    )
    return low, high


def _variation(hour: NDArray[np.float64], groups: NDArray[np.float64]) -> float:
    """Return by how many hours the hours of the day vary within groups, round the clock."""
    _, number, size = np.unique(groups, return_inverse=True, return_counts=True)
    # An arrival that is alone in its group is compared with none.
    some = size[number] > 1
    free = int(some.sum()) - int((size > 1).sum())
    if free < max(2.0, _COMPARED_SHARE * len(hour)):
        return 12.0
    angle = hour * (2 * np.pi / 24)
    east, north = np.bincount(number, np.cos(angle)), np.bincount(number, np.sin(angle))
    off = hour - (np.arctan2(north, east) * 24 / (2 * np.pi))[number]
    off = np.abs((off + 12) % 24 - 12)
    # Small groups fit themselves.
    return float(np.median(off[some])) * float(np.sqrt(some.sum() / free))


def _between(value: float, nothing: float, fully: float) -> float:
    return min(max((value - nothing) / (fully - nothing), 0.0), 1.0)
