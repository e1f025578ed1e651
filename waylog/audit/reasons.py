"""Reasons, counted: why something was refused, or is not known."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

_REASONS_MAX: Final = 5
_REASON_CHARACTERS_MAX: Final = 300


class ReasonCount(msgspec.Struct, frozen=True):
    """A reason, and how often it was one."""

    reason: str
    count: int


def count_reason(reasons: Counter[str], reason: str, number: int = 1) -> None:
    """Count a reason, or take it back with -1; of many different ones the first few are kept."""
    reason = reason[:_REASON_CHARACTERS_MAX]
    if reason in reasons or (number > 0 and len(reasons) < _REASONS_MAX):
        reasons[reason] += number
        if reasons[reason] <= 0:
            del reasons[reason]


def reason_counts(reasons: Counter[str] | None) -> list[ReasonCount]:
    """Return the reasons, the most frequent first."""
    return [ReasonCount(*each) for each in (reasons or Counter()).most_common()]
