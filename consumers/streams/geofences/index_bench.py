"""Measures the look-up of candidates alone: CPU of a fix, by the number of geofences.

    python -m consumers.streams.geofences.index_bench
    python -m consumers.streams.geofences.index_bench --fences 1000000

Circles of 50 to 1000 m, half of them where the 10,000 devices are, which walk at random, the others
up to two degrees away. They are looked up for 1,000 fixes at once. Figures are the median of ten
rounds of all devices, of processor time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from consumers.streams.geofences.fence_index import Fence, FenceIndex
from waylog.geofences.definition import Circle, Geofence
from waylog.messages import EVERYBODY, Fix
from waylog.process.garbage_collection import tune_garbage_collector

_FENCES: Final = (100, 10_000, 100_000)
_DEVICES: Final = 10_000
_BATCH: Final = 1_000
_ROUNDS: Final = 10
_ACCURACY_M: Final = 14.0

Place = tuple[float, float]


class _Measured(msgspec.Struct):
    """What the look-up of a fix costs."""

    fences: int
    fences_of: str
    us_cpu_per_fix: float
    candidates_per_fix: float


def _measured(fences: int, *, is_of_everybody: bool) -> _Measured:
    """Measure an index of fences of everybody, or of the devices' users."""
    chance = random.Random(1)
    places = [(chance.uniform(46, 48), chance.uniform(8, 11)) for _ in range(_DEVICES)]
    index = FenceIndex()
    for fence in _fences(fences, places, is_of_everybody=is_of_everybody):
        index.put(fence)
    margins = [_ACCURACY_M] * _BATCH
    # The first look-up builds the tree.
    index.candidates([_fix(0, places[0])], margins[:1])
    tune_garbage_collector()
    cpu_us: list[float] = []
    candidates = 0
    for _ in range(_ROUNDS):
        places = [(lat + chance.gauss(0, 5e-4), lon + chance.gauss(0, 5e-4)) for lat, lon in places]
        fixes = [_fix(number, place) for number, place in enumerate(places)]
        batches = [fixes[begin : begin + _BATCH] for begin in range(0, _DEVICES, _BATCH)]
        began = time.process_time()
        found = [index.candidates(batch, margins[: len(batch)]) for batch in batches]
        cpu_us.append(1e6 * (time.process_time() - began) / _DEVICES)
        candidates += sum(len(holding) for each in found for holding in each.values())
    return _Measured(
        fences,
        "everybody" if is_of_everybody else "user",
        round(statistics.median(cpu_us), 2),
        round(candidates / _ROUNDS / _DEVICES, 2),
    )


def _fences(count: int, places: list[Place], *, is_of_everybody: bool) -> Iterator[Fence]:
    chance = random.Random(2)
    for number in range(count):
        device = chance.randrange(len(places))
        lat, lon = places[device]
        if number % 2:
            lat, lon = lat + chance.uniform(-2, 2), lon + chance.uniform(-2, 2)
        else:
            lat, lon = lat + chance.gauss(0, 0.002), lon + chance.gauss(0, 0.002)
        owner = EVERYBODY if is_of_everybody else f"user{device}"
        circle = Circle(lat=lat, lon=lon, radius=50 * 20 ** chance.random())
        yield Fence.of(f"{owner}/{number}", Geofence(circle=circle, dwell=600))


def _fix(number: int, place: Place) -> Fix:
    user, (lat, lon) = f"user{number}", place
    return Fix(
        id="", device=f"{user}/phone", user=user, lat=lat, lon=lon, time=0, received=0,
        accuracy=_ACCURACY_M,
    )  # fmt: skip


def main() -> int:
    """Print a line of JSON for each number of fences, of everybody and of users."""
    parser = argparse.ArgumentParser(
        prog="python -m consumers.streams.geofences.index_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fences", type=int, nargs="+", default=_FENCES, help="%(default)s")
    for count in parser.parse_args().fences:
        for is_of_everybody in (True, False):
            found = _measured(count, is_of_everybody=is_of_everybody)
            print(msgspec.json.encode(found).decode(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
