"""Gaps in the numbers that an app counts its fixes with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

#: Attributes of a fix in which an app may count. None of the apps of docs/formats.md does by
#: itself; our own JSON and the OsmAnd protocol keep what a sender adds.
NAMES: Final = ("sequence", "seq")
_GAPS_MAX: Final = 100
#: Larger numbers are no counts.
_SEQUENCE_MAX: Final = (1 << 63) - 1


class Gap(msgspec.Struct, frozen=True):
    """Numbers `first` to `last`, both inclusive, that have not come."""

    first: int
    last: int


class Sequence(msgspec.Struct, frozen=True):
    """What the numbers of a day's fixes tell."""

    first: int
    last: int
    count: int  # different numbers that have come
    missing: int  # numbers between two that have come
    gaps: list[Gap]  # the first of them
    restarts: int  # how often the count has begun again


def sequence_of(attributes: Mapping[str, Any] | None) -> int | None:
    """Return the number with which an app has counted a fix, None if it does not."""
    for name in NAMES:
        value = None if attributes is None else attributes.get(name)
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
            value = int(value)
        elif isinstance(value, float) and value.is_integer():
            value = int(value)  # numbers of the OsmAnd protocol
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _SEQUENCE_MAX:
            return value
    return None


def find_gaps(numbered: Iterable[tuple[int, int]]) -> Sequence | None:
    """Return the gaps in (time, number) pairs of different fixes, in any order; None for no pair.

    In the order of their times the numbers grow. A smaller one means that the count has begun again
    (a new installation); what is missing between two such runs cannot be known. O(n log n).
    """
    ordered = sorted(numbered)
    if not ordered:
        return None
    gaps: list[Gap] = []
    missing = restarts = 0
    count = 1
    previous = first = ordered[0][1]
    for _, number in ordered[1:]:
        if number == previous:
            continue
        count += 1
        if number < previous:
            restarts += 1
        elif number > previous + 1:
            missing += number - previous - 1
            if len(gaps) < _GAPS_MAX:
                gaps.append(Gap(previous + 1, number - 1))
        previous = number
    return Sequence(first, previous, count, missing, gaps, restarts)
