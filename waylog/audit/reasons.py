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
    """Count a reason; of many different ones only the first few are kept."""
    reason = reason[:_REASON_CHARACTERS_MAX]
    if reason in reasons or len(reasons) < _REASONS_MAX:
        reasons[reason] += number


def reason_counts(reasons: Counter[str] | None) -> list[ReasonCount]:
    """Return the reasons, the most frequent first."""
    return [ReasonCount(*each) for each in (reasons or Counter()).most_common()]
