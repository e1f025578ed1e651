"""Prints the figures of docs/places.md about lives: `python -m tests.spark.lives.measure`.

With `phones` those of the manners of reporting, with `labels` those of homes and jobs. Nothing was
tuned on the seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import Final

from spark.places.finding import find_places
from spark.places.stays import stays_of
from tests.spark.lives.kinds import KINDS, days_of, make_life
from tests.spark.lives.phones import MANNERS, report
from tests.spark.lives.scoring import Tally

_FIRST: Final = 30_000
_FIRST_OF_LABELS: Final = 50_000
_COMPANY: Final = ("office", "idle", "student")
_WITH_OUTLIERS: Final = ("continuous", "periodic", "significant change", "on motion")
_LABELLED: Final = ("continuous", "significant change")


def main(arguments: list[str]) -> None:
    """Print what is asked for, or all."""
    if "phones" in (arguments or ["phones"]):
        for manner in MANNERS:
            _print(manner, _COMPANY, [manner], 28)
            if manner.endswith("before the door"):
                _print(f"{manner}, within 300 m", _COMPANY, [manner], 28, near_m=300)
        for manner in _WITH_OUTLIERS:
            _print(f"{manner}, outliers", _COMPANY, [manner], 28, outliers=True)
    if "labels" in (arguments or ["labels"]):
        for kind in KINDS:
            _print(kind, [kind], _LABELLED, days_of(kind), first=_FIRST_OF_LABELS)


def _print(
    name: str,
    kinds: Iterable[str],
    manners: Collection[str],
    days: int,
    *,
    first: int = _FIRST,
    outliers: bool = False,
    near_m: float = 100.0,
) -> None:
    tally = Tally(near_m)
    for kind in kinds:
        for manner in manners:
            for seed in range(first, first + 10):
                life = make_life(kind, seed, days)
                fixes = report(life, manner, seed, outliers=outliers)
                tally.add(life, fixes, find_places("u/phone", stays_of(fixes)))
    print(f"{name}: {tally}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
