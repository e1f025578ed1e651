"""Where a person was, minute by minute: visits, the ways between them, and homes and jobs in time.

A second generator of people, besides `tests/spark/synthetic.py`, of which it shares nothing. Each
kind of life was written down from its description (`tests/spark/lives/kinds.py`); what a phone
reports of it is another matter (`tests/spark/lives/phones.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
_METRES: Final = 111_195.0
_WALK_M_PER_S: Final = 1.25


@dataclass(frozen=True)
class Spot:
    """A place of the truth."""

    lat: float
    lon: float
    zone: str


@dataclass(frozen=True)
class TrueVisit:
    """A visit; times in ms since 1970 UTC."""

    spot: int
    start: int
    end: int


@dataclass(frozen=True)
class Role:
    """A home or a workplace, and the days on which it was one: `first` included, `end` not."""

    label: str
    spot: int
    first: int  # day of the life, from 0
    end: int


@dataclass
class Life:
    """The truth about one person."""

    zone: str
    first_date: datetime
    days: int
    spots: list[Spot] = field(default_factory=list)
    visits: list[TrueVisit] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    # The way, as points that are joined by straight lines: ms, degrees.
    time: list[float] = field(default_factory=list)
    lat: list[float] = field(default_factory=list)
    lon: list[float] = field(default_factory=list)  # without a jump at the date line

    def wall(self, day: int, hour: float, zone: str | None = None) -> int:
        """Return the time of a clock on the wall, in ms since 1970 UTC."""
        local = self.first_date.replace(tzinfo=ZoneInfo(zone or self.zone)) + timedelta(days=day)
        local += timedelta(minutes=round(hour * 60))
        return round(local.astimezone(UTC).timestamp() * 1000)

    def at(
        self, time: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return true latitudes, longitudes and speeds (m/s) at some times."""
        lat = np.interp(time, self.time, self.lat)
        lon = np.interp(time, self.time, self.lon)
        later_lat = np.interp(time + 1000, self.time, self.lat)
        later_lon = np.interp(time + 1000, self.time, self.lon)
        speed = _METRES * np.hypot(later_lat - lat, (later_lon - lon) * np.cos(np.radians(lat)))
        return lat, lon, speed

    @property
    def start(self) -> int:
        return self.visits[0].start

    @property
    def end(self) -> int:
        return self.visits[-1].end


def metres(one: Spot, other: Spot) -> float:
    """Return the distance of two spots on a flat map."""
    east = (other.lon - one.lon + 180) % 360 - 180
    return _METRES * math.hypot(
        other.lat - one.lat, east * math.cos(math.radians((one.lat + other.lat) / 2))
    )


class Walker:
    """Moves a person from visit to visit and writes down where that leads."""

    def __init__(self, life: Life, dice: np.random.Generator, spot: int) -> None:
        self._life = life
        self._dice = dice
        self.spot = spot
        self._since = life.wall(0, 0.0)
        self._until = 0
        self._lon = life.spots[spot].lon

    def _duration_ms(self, distance: float) -> float:
        if distance < 1200:
            speed = _WALK_M_PER_S
        elif distance > 300_000:
            return HOUR_MS + distance / 230.0 * 1000  # by air
        else:
            speed = float(self._dice.uniform(4.5, 9.0) + min(distance / 4000.0, 14.0))
        return distance * 1.25 / speed * 1000

    def go(self, spot: int, arrival: int) -> int:
        """Go to a spot, to be there at `arrival` if possible; return the time of arrival."""
        life = self._life
        if spot == self.spot:
            return self._since
        here, there = life.spots[self.spot], life.spots[spot]
        distance = metres(here, there)
        duration = self._duration_ms(distance)
        leave = max(arrival - duration, self._since + 6 * MINUTE_MS, self._until)
        arrive = leave + duration
        life.visits.append(TrueVisit(self.spot, self._since, round(leave)))
        self._mark(self._since, here.lat, self._lon)
        self._mark(leave, here.lat, self._lon)
        east = (there.lon - here.lon + 180) % 360 - 180
        # The way bends to the left or to the right of the straight line, and is not driven evenly.
        bend = float(self._dice.normal(0, 0.12))
        steps = max(2, min(40, int(duration / (3 * MINUTE_MS))))
        shares = np.sort(self._dice.uniform(0.04, 0.96, steps))
        stretched = np.linspace(0, 1, steps + 2)[1:-1] * 0.7 + shares * 0.3
        for along, passed in zip(shares, stretched, strict=True):
            side = bend * math.sin(math.pi * along)
            self._mark(
                leave + passed * duration,
                here.lat + along * (there.lat - here.lat) + side * east * 0.6,
                self._lon + along * east - side * (there.lat - here.lat),
            )
        self._lon += east
        self._mark(arrive, there.lat, self._lon)
        self.spot, self._since = spot, round(arrive)
        return self._since

    def hold(self, until: int) -> None:
        """Stay at least until then."""
        self._until = until

    def _mark(self, time: float, lat: float, lon: float) -> None:
        life = self._life
        life.time.append(time if not life.time else max(time, life.time[-1] + 1))
        life.lat.append(lat)
        life.lon.append(lon)

    def finish(self, end: int) -> None:
        """End the life where the person is."""
        end = max(end, self._since + 10 * MINUTE_MS)
        self._life.visits.append(TrueVisit(self.spot, self._since, end))
        self._mark(self._since, self._life.spots[self.spot].lat, self._lon)
        self._mark(end, self._life.spots[self.spot].lat, self._lon)
