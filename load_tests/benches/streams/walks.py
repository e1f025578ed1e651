"""Fixes of devices that walk at random, or along the lines of a file, for topologies."""

from __future__ import annotations

import csv
import gzip
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waylog.messages import Fix, encode, fix_id

#: Degrees of latitude from one fix to the next, as a standard deviation.
STEP: Final = 0.0005
#: The same from a companion to where its group is; some metres.
_BESIDE: Final = 0.00005

Place = tuple[float, float]


@dataclass(frozen=True)
class Walks:
    """How devices move; the same walks each time."""

    devices: int
    #: Devices whose numbers follow each other move together, so many of them.
    companions: int = 1
    step: float = STEP
    #: CSV (gzip) with uid, lat and lon in its first columns, instead of chance.
    tracks: Path | None = None

    def rounds(self) -> Iterator[list[Place]]:
        """Yield the places of all devices, again and again."""
        chance = random.Random(1)
        if self.tracks is not None:
            tracks = itertools.cycle(_places(self.tracks))
            while True:
                yield list(itertools.islice(tracks, self.devices))
        groups = -(-self.devices // self.companions)
        places = [(chance.uniform(46, 48), chance.uniform(8, 11)) for _ in range(groups)]
        while True:
            yield places if self.companions == 1 else self._beside(places, chance)
            places = [_moved(place, self.step, chance) for place in places]

    def _beside(self, places: list[Place], chance: random.Random) -> list[Place]:
        groups = (places[number // self.companions] for number in range(self.devices))
        return [_moved(place, _BESIDE, chance) for place in groups]


def _moved(place: Place, step: float, chance: random.Random) -> Place:
    lat, lon = place
    return lat + chance.gauss(0, step), lon + chance.gauss(0, step)


def _places(path: Path) -> list[Place]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = itertools.islice(csv.reader(lines), 1, None, 20)
        return [(float(row[1]), float(row[2])) for row in rows]


def records(
    rounds: Iterable[list[Place]], times: Iterable[int], gaps: float = 0.0
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of fixes; `times` has each in ms, a part of `gaps` of them is missing."""
    every_time, chance = iter(times), random.Random(3)
    for places in rounds:
        for device_number, (lat, lon) in enumerate(places):
            time_ms = next(every_time)
            if gaps and chance.random() < gaps:
                continue
            device = f"user{device_number}/phone"
            fix = Fix(
                id=fix_id(device, time_ms, lat, lon),
                device=device,
                user=f"user{device_number}",
                lat=lat,
                lon=lon,
                time=time_ms,
                received=time_ms + 900,
                accuracy=14.0,
                speed=6.4,
                battery=72.0,
                source="owntracks",
            )
            yield device.encode(), encode(fix)
