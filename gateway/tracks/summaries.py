"""Answers questions about what a device did: its timeline, its days, its statistics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import numpy as np

from gateway.tracks.archive import Question
from gateway.tracks.asking import AnswerRefused, AnswerUnavailable
from gateway.tracks.spans import SPANS
from gateway.tracks.statistics import Statistics, days_of
from gateway.tracks.timelines import TOLERANCE_M, timeline, within
from gateway.tracks.track_points import Points, between
from waylog.config import ConfigError
from waylog.movement.calendar import Calendar

if TYPE_CHECKING:
    from waylog.history.history_reader import HistoryReader

#: What begins before a period is looked for this long before it, and as long after it.
MARGIN_MS: Final = 16 * 3_600_000
_MONTH: Final = len("YYYY-MM")


class Source(Protocol):
    """The points of a device as who asks may see them."""

    recent: Points

    def points(self, from_ms: int, to_ms: int, limit: int) -> Points:
        """Return the points of a period. Raises AnswerRefused for more than the limit."""


def summary_of(question: Question, history: HistoryReader | None, source: Source) -> bytes:
    """Return the answer as JSON. Raises AnswerRefused and AnswerUnavailable."""
    if question.kind == "timeline":
        return _timeline(question, source)
    try:
        calendar = Calendar(question.zone)
    except ConfigError as error:
        raise AnswerRefused(str(error)) from error
    if question.kind == "days":
        return _days(question, history, source, calendar)
    if question.span not in SPANS:
        raise AnswerRefused(f"by must be one of {', '.join(SPANS)}")
    return _statistics(question, history, source, calendar)


def _margin_ms(question: Question) -> int:
    """Return how far beyond the period is looked.

    For friends not at all: theirs may begin with the friendship.
    """
    return MARGIN_MS if question.circles is None else 0


def _timeline(question: Question, source: Source) -> bytes:
    margin_ms = _margin_ms(question)
    points = source.points(question.from_ms - margin_ms, question.to_ms + margin_ms, question.limit)
    if question.circles is not None:
        # The circles' size is no error of measurement.
        points = points.copy()
        points["accuracy"] = np.nan
    items = within(timeline(points), question.from_ms, question.to_ms)
    return msgspec.json.encode({"items": items, "tolerance_m": TOLERANCE_M})


def _days(
    question: Question, history: HistoryReader | None, source: Source, calendar: Calendar
) -> bytes:
    found: Counter[str] = Counter()
    if question.circles is not None or history is None:
        points = source.points(question.from_ms, question.to_ms, question.limit)
        found = days_of(points["time"].astype(np.int64), calendar)
    else:
        recent = between(source.recent, question.from_ms, question.to_ms)
        times = recent["time"].astype(np.int64)
        past = _times(question, history, calendar)
        in_memory = days_of(times, calendar)
        # Memory and history hold much of the same: the one that has more of a day counts.
        found = past | in_memory
    days = [{"date": date, "fixes": fixes} for date, fixes in sorted(found.items())]
    return msgspec.json.encode({"time_zone": question.zone, "days": days})


def _times(question: Question, history: HistoryReader, calendar: Calendar) -> Counter[str]:
    from waylog.history.history_reader import HistoryUnreadable, period_bounds_ms

    found: Counter[str] = Counter()
    try:
        for period in history.periods():
            start, stop = period_bounds_ms(period)
            if start <= question.to_ms and stop > question.from_ms:
                times = history.times(period, question.device, question.from_ms, question.to_ms)
                found += days_of(times, calendar)
    except (HistoryUnreadable, OSError) as error:
        raise AnswerUnavailable(str(error)) from error
    return found


def _statistics(
    question: Question, history: HistoryReader | None, source: Source, calendar: Calendar
) -> bytes:
    from waylog.history.history_reader import period_bounds_ms

    from_ms, to_ms = question.from_ms - _margin_ms(question), question.to_ms
    recent = between(source.recent, from_ms, to_ms)
    months = {period[:_MONTH] for period in (history.periods() if history is not None else ())}
    months |= {str(month) for month in np.unique(recent["time"].astype("M8[ms]").astype("M8[M]"))}
    statistics = Statistics(calendar)
    left = question.limit
    for month in sorted(months):
        start, stop = period_bounds_ms(month)
        if start > to_ms or stop <= from_ms:
            continue
        points = source.points(max(start, from_ms), min(stop - 1, to_ms), left)
        left -= len(points)
        if question.circles is not None:
            points = points.copy()
            points["accuracy"] = np.nan
        statistics.add(points)
    first, last = calendar.date_of(question.from_ms), calendar.date_of(to_ms)
    totals = statistics.totals(question.span, first, last)
    return msgspec.json.encode({"time_zone": question.zone, "by": question.span, "totals": totals})
