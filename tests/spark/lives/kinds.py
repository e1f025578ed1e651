"""Kinds of lives: how the days of an office worker, a baker, a pensioner, a student go by.

Each is written from its description. A life is a list of plans for each day; who has nothing to do
is at home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np

from tests.spark.lives.itinerary import HOUR_MS, Life, Role, Spot, Walker, metres

_METRES: Final = 111_195.0
MONDAY: Final = datetime(2026, 3, 2)


class Plan(NamedTuple):
    """Something to do at a spot: from an hour of the day (25 is 1:00 of the next) for hours."""

    hour: float
    spot: int
    hours: float
    zone: str | None = None


@dataclass
class Town:
    """Gives out spots around a centre, far enough from each other."""

    life: Life
    dice: np.random.Generator
    lat: float
    lon: float
    apart_m: float = 350.0

    def spot(self, sigma_m: float = 4000.0, zone: str | None = None) -> int:
        life = self.life
        while True:
            north, east = self.dice.normal(0, sigma_m, 2) / _METRES
            lon = (self.lon + east / np.cos(np.radians(self.lat)) + 180) % 360 - 180
            new = Spot(float(self.lat + north), float(lon), zone or life.zone)
            if all(metres(new, other) >= self.apart_m for other in life.spots):
                life.spots.append(new)
                return len(life.spots) - 1


class Days:
    """What a kind of life needs: the town, the dice, and plans that fill days."""

    def __init__(self, life: Life, dice: np.random.Generator, town: Town) -> None:
        self.life, self.dice, self.town = life, dice, town
        self.plans: dict[int, list[Plan]] = {}
        self.homes: list[int] = []  # of each day: where the day ends
        self.home = town.spot(2500)
        self.haunts = [town.spot() for _ in range(int(dice.integers(4, 8)))]
        weight = 1.0 / np.arange(1, len(self.haunts) + 1)
        self.weight = weight / weight.sum()

    def add(self, day: int, hour: float, spot: int, hours: float, zone: str | None = None) -> None:
        self.plans.setdefault(day, []).append(Plan(hour, spot, hours, zone))

    def work(self, day: int, hour: float, spot: int, hours: float, jitter: float = 0.25) -> None:
        hour += float(self.dice.normal(0, jitter))
        self.add(day, hour, spot, hours + float(self.dice.normal(0, 0.35)))

    def leisure(self, day: int, first: float, last: float, mean: float) -> None:
        """Visit haunts: some of them, for a quarter of an hour to some hours."""
        for _ in range(int(self.dice.poisson(mean))):
            spot = int(self.dice.choice(self.haunts, p=self.weight))
            hours = float(np.clip(self.dice.lognormal(np.log(0.8), 0.6), 0.25, 4.0))
            self.add(day, float(self.dice.uniform(first, last)), spot, hours)

    def is_weekend(self, day: int) -> bool:
        return day % 7 >= 5

    def role(self, label: str, spot: int, first: int = 0, end: int | None = None) -> None:
        self.life.roles.append(Role(label, spot, first, self.life.days if end is None else end))

    def walk(self) -> None:
        """Live through all days."""
        life = self.life
        walker = Walker(life, self.dice, self.homes[0] if self.homes else self.home)
        for day in range(life.days):
            home = self.homes[day] if self.homes else self.home
            zone = life.spots[home].zone
            plans = sorted(self.plans.get(day, []))
            for plan, after in zip(plans, [*plans[1:], None], strict=False):
                begin = life.wall(day, plan.hour, plan.zone or zone)
                arrived = walker.go(plan.spot, begin)
                until = max(arrived + plan.hours * HOUR_MS * 0.6, begin + plan.hours * HOUR_MS)
                until = round(min(until, arrived + plan.hours * HOUR_MS))
                soon = None if after is None else life.wall(day, after.hour, after.zone or zone)
                walker.hold(until)
                if soon is None or soon - until > 1.7 * HOUR_MS or self.dice.random() < 0.25:
                    ride = metres(life.spots[walker.spot], life.spots[home]) / 8.0 * 1000
                    walker.go(home, round(until + ride))
            if not plans and walker.spot != home:
                walker.go(home, life.wall(day, float(self.dice.uniform(10, 18)), zone))
        walker.finish(life.wall(life.days, 0.0))


def office(days: Days, until: int | None = None) -> None:
    """Monday to Friday from half past eight, something after work, more on weekends."""
    job = days.town.spot(6000)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        _office_day(days, day, job)


def _office_day(days: Days, day: int, job: int) -> None:
    if days.is_weekend(day):
        days.leisure(day, 10, 20, 1.6)
    elif days.dice.random() < 0.95:
        days.work(day, 8.5, job, 8.3)
        days.leisure(day, 17.5, 20, 0.6)


def idle(days: Days) -> None:
    """No job: errands and friends at any hour, an afternoon at a friend's now and then."""
    days.role("home", days.home)
    friend = days.town.spot()
    for day in range(days.life.days):
        days.leisure(day, 9.5, 20, 1.7)
        if days.dice.random() < 0.15:
            days.add(
                day, float(days.dice.uniform(11, 18)), friend, float(days.dice.uniform(1.5, 5))
            )


def retired_club(days: Days) -> None:
    """Pensioners with a club: three afternoons a week, for three hours or four."""
    days.role("home", days.home)
    club = days.town.spot()
    for day in range(days.life.days):
        days.leisure(day, 9, 12, 0.8)
        if day % 7 in (1, 3, 5) and days.dice.random() < 0.9:
            hour = 14 + float(days.dice.normal(0, 0.6))
            days.add(day, hour, club, float(days.dice.normal(3.4, 0.7)))
        else:
            days.leisure(day, 13, 18, 0.6)


def retired_cottage(days: Days) -> None:
    """Pensioners with a second home, 40 km away: from Friday to Sunday, or from Tuesday on."""
    cottage = days.town.spot(28_000)
    days.role("home", days.home)
    days.role("home", cottage)
    for day in range(days.life.days):
        away = day % 7 in (4, 5) or (day % 14 in (8, 9, 10) and day % 7 < 4)
        days.homes.append(cottage if away else days.home)
        if not away and day % 7 != 6:
            days.leisure(day, 9.5, 18, 1.5)


def nurse(days: Days) -> None:
    """Nights from ten to six: four on, three off."""
    job = days.town.spot(6000)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if day % 7 < 4:
            days.work(day, 22, job, 8.2)
        else:
            days.leisure(day, 14, 20, 0.9)


def baker(days: Days) -> None:
    """From half past two in the morning to ten, Tuesday to Saturday."""
    job = days.town.spot(3500)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if day % 7 in (1, 2, 3, 4, 5):
            days.work(day, 2.6, job, 7.4)
            days.leisure(day, 15, 18, 0.5)
        else:
            days.leisure(day, 11, 18, 1.0)


def barkeeper(days: Days) -> None:
    """From six in the evening to two in the night, Wednesday to Sunday."""
    job = days.town.spot(3500)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if day % 7 in (2, 3, 4, 5, 6):
            days.leisure(day, 12, 15, 0.6)
            days.work(day, 18, job, 8.0)
        else:
            days.leisure(day, 12, 19, 1.2)


def weekend_job(days: Days) -> None:
    """Saturdays and Sundays for eight hours; otherwise free."""
    job = days.town.spot(5000)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if days.is_weekend(day):
            days.work(day, 9.5, job, 8.0)
        else:
            days.leisure(day, 10, 19, 1.1)


def shift_worker(days: Days) -> None:
    """Early, late and night shifts, a week each."""
    job = days.town.spot(6000)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if day % 7 < 5:
            days.work(day, (6, 14, 22)[day // 7 % 3], job, 7.8)
        else:
            days.leisure(day, 11, 20, 1.4)


def student(days: Days) -> None:
    """Lectures at other hours each weekday, a library on two evenings; weekends with the parents
    every third week.
    """
    campus, parents = days.town.spot(), days.town.spot(30_000)
    days.role("home", days.home)
    days.role("work", campus)
    begins = days.dice.choice([8.25, 9, 10, 12], 5)
    for day in range(days.life.days):
        visiting = day // 7 % 3 == 2 and day % 7 in (4, 5)
        days.homes.append(parents if visiting else days.home)
        if not days.is_weekend(day) and days.dice.random() < 0.93:
            days.work(day, float(begins[day % 7]), campus, float(days.dice.uniform(4.5, 7)))
        if not visiting and day % 7 != 6:
            days.leisure(day, 18.5, 21, 0.8)


def two_homes(days: Days) -> None:
    """Weekdays near the job, weekends with the family 90 km away."""
    family, job = days.town.spot(60_000), days.town.spot(4000)
    days.role("home", days.home)
    days.role("home", family)
    days.role("work", job)
    for day in range(days.life.days):
        away = day % 7 in (4, 5, 6)
        days.homes.append(family if day % 7 in (4, 5) else days.home)
        if day % 7 < 5:
            days.work(day, 8.3, job, 8.6 if day % 7 < 4 else 6.0)
        if not away:
            days.leisure(day, 18, 20, 0.6)


def three_jobs(days: Days) -> None:
    """A consultant: two customers on two days each, an office on Fridays."""
    jobs = [days.town.spot(7000) for _ in range(3)]
    days.role("home", days.home)
    for job in jobs:
        days.role("work", job)
    for day in range(days.life.days):
        if day % 7 < 5:
            days.work(day, 8.7, jobs[day % 7 // 2], 8.0)
            days.leisure(day, 17.5, 20, 0.5)
        else:
            days.leisure(day, 10, 20, 1.5)


def part_time(days: Days) -> None:
    """Mornings from eight to half past twelve, Monday to Thursday."""
    job = days.town.spot(5000)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if day % 7 < 4:
            days.work(day, 8, job, 4.6)
        days.leisure(day, 14.5, 19, 0.9)


def home_office(days: Days) -> None:
    """At home for most of the week; in the office on Tuesdays and Thursdays, at flexible hours."""
    job = days.town.spot(9000)
    days.role("home", days.home)
    days.role("work", job)
    for day in range(days.life.days):
        if day % 7 in (1, 3) and days.dice.random() < 0.93:
            days.add(day, float(days.dice.uniform(7.5, 10)), job, float(days.dice.normal(7.2, 0.9)))
        else:
            days.leisure(day, 12, 20, 0.9)


def carer(days: Days) -> None:
    """No job: looks after the mother on most days, at other hours each, and goes to a cafe."""
    mother, cafe = days.town.spot(), days.town.spot()
    days.role("home", days.home)
    for day in range(days.life.days):
        if days.dice.random() < 0.75:
            hours = float(days.dice.uniform(1.2, 4.2))
            days.add(day, float(days.dice.uniform(10, 15)), mother, hours)
        if days.dice.random() < 0.5:
            days.add(
                day, float(days.dice.normal(9.3, 0.4)), cafe, float(days.dice.uniform(0.5, 1.5))
            )
        days.leisure(day, 16, 20, 0.5)


def weekly_friend(days: Days) -> None:
    """No job; four to seven hours at a friend's on the same day of each week."""
    days.role("home", days.home)
    friend = _Friend(days, (11.5, 17))
    for day in range(days.life.days):
        if not friend.visit(days, day):
            days.leisure(day, 9.5, 20, 1.2)


def office_and_friend(days: Days) -> None:
    """An office worker who does the same, after work or on a day of the weekend."""
    job = days.town.spot(6000)
    days.role("home", days.home)
    days.role("work", job)
    friend = _Friend(days, (17, 18.5))
    for day in range(days.life.days):
        if not days.is_weekend(day):
            days.work(day, 8.2, job, 8.2)
        if not friend.visit(days, day):
            days.leisure(day, 17.5, 20, 0.6)


class _Friend:
    """A friend who is visited on a day of the week, at an hour, for as long each time, or about."""

    def __init__(self, days: Days, hours: tuple[float, float]) -> None:
        dice = days.dice
        self._spot, self._weekday = days.town.spot(), int(dice.integers(0, 7))
        self._hour = float(dice.uniform(*((11.5, 16) if self._weekday >= 5 else hours)))
        self._hours = float(dice.uniform(4, 7))
        self._about_h = float(dice.choice([0.2, 0.6, 1.1]))

    def visit(self, days: Days, day: int) -> bool:
        """Visit the friend on the day of the week, nine times in ten."""
        if day % 7 != self._weekday or days.dice.random() > 0.9:
            return False
        hour, hours = days.dice.normal((self._hour, self._hours), self._about_h)
        days.add(day, float(hour), self._spot, float(np.clip(hours, 2.5, 7)))
        return True


def one_day(days: Days) -> None:
    """A job on one day of the week: half a day or a whole one from the morning, or a late shift."""
    early = days.dice.random() < 0.6
    hour = float(days.dice.uniform(*((7.5, 9.3) if early else (12, 22))))
    hours = float(days.dice.uniform(*((6, 9) if early else (8, 9))))
    _some_days(days, 1, hour, hours)


def two_days(days: Days) -> None:
    """A job on two days of the week, for five to eight hours at any hour of the day."""
    _some_days(days, 2, float(days.dice.uniform(5, 22.5)), float(days.dice.uniform(5, 8)))


def _some_days(days: Days, count: int, hour: float, hours: float) -> None:
    job = days.town.spot(5000)
    days.role("home", days.home)
    days.role("work", job)
    weekdays = days.dice.choice(7, count, replace=False).tolist()
    for day in range(days.life.days):
        if day % 7 in weekdays:
            days.work(day, hour, job, hours, jitter=0.2)
        elif (day - 1) % 7 not in weekdays:
            days.leisure(day, 10, 20, 1.2)


def mover(days: Days, day: int = 60) -> None:
    """Moves house; the job and the haunts stay."""
    new, job = days.town.spot(5000), days.town.spot(6000)
    days.role("home", days.home, 0, day)
    days.role("home", new, day)
    days.role("work", job)
    for number in range(days.life.days):
        days.homes.append(days.home if number < day else new)
        _office_day(days, number, job)


def job_changer(days: Days, day: int = 60) -> None:
    """Changes the job; the home stays."""
    old, new = days.town.spot(6000), days.town.spot(6000)
    days.role("home", days.home)
    days.role("work", old, 0, day)
    days.role("work", new, day)
    for number in range(days.life.days):
        _office_day(days, number, old if number < day else new)


def traveller(days: Days) -> None:
    """An office worker who spends two weeks of holidays in Japan and two nights in Rome."""
    job = days.town.spot(6000)
    days.role("home", days.home)
    days.role("work", job)
    japan = Town(days.life, days.dice, 35.68, 139.70)
    hotel, rome = (
        japan.spot(3000, "Asia/Tokyo"),
        Town(days.life, days.dice, 41.89, 12.48).spot(3000, "Europe/Rome"),
    )
    sights = [japan.spot(5000, "Asia/Tokyo") for _ in range(6)]
    for day in range(days.life.days):
        if 19 <= day < 33:
            days.homes.append(hotel)
            if day > 19:
                for number in days.dice.choice(6, 2, replace=False):
                    hour = float(days.dice.uniform(9.5, 18))
                    days.add(day, hour, sights[number], float(days.dice.uniform(0.7, 2.5)))
        elif day in (8, 9):
            days.homes.append(rome)
        else:
            days.homes.append(days.home)
            _office_day(days, day, job)


KINDS: Final[dict[str, Callable[[Days], None]]] = {
    "office": office,
    "idle": idle,
    "retired, club": retired_club,
    "retired, cottage": retired_cottage,
    "nurse": nurse,
    "baker": baker,
    "barkeeper": barkeeper,
    "weekend job": weekend_job,
    "shifts": shift_worker,
    "student": student,
    "two homes": two_homes,
    "three jobs": three_jobs,
    "part time": part_time,
    "home office": home_office,
    "carer": carer,
    "friend": weekly_friend,
    "office, friend": office_and_friend,
    "one day": one_day,
    "two days": two_days,
    "mover": mover,
    "job changer": job_changer,
    "traveller": traveller,
}


_DAYS: Final = {"mover": 90, "job changer": 90, "traveller": 56, "shifts": 42}


def days_of(kind: str) -> int:
    """Return enough days for a life of this kind to show."""
    return _DAYS.get(kind, 35)


def make_life(
    kind: str,
    seed: int,
    days: int,
    *,
    around: tuple[float, float, str] = (50.94, 6.96, "Europe/Berlin"),
    first_date: datetime = MONDAY,
) -> Life:
    """Return a life of some days around a point (degrees, name of the time zone)."""
    dice = np.random.default_rng([seed, *kind.encode()])
    lat, lon, zone = around
    life = Life(zone, first_date, days)
    plans = Days(life, dice, Town(life, dice, lat, lon))
    KINDS[kind](plans)
    plans.walk()
    assert all(visit.end > visit.start for visit in life.visits)
    assert all(b >= a for a, b in zip(life.time, life.time[1:], strict=False))
    return life
