"""Windows over event time: tumbling, hopping and session windows, as Kafka Streams has them.

A window holds the records of a key whose times are in [start, end), in ms since 1970. It closes
when the stream time, which is the latest time that a partition has seen, is later than its end by
the grace; what comes for it then is late and left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from waylog.config import ConfigError

AggregateT = TypeVar("AggregateT")


@dataclass(frozen=True)
class TimeWindows:
    """Windows of one size, one after the other (tumbling) or overlapping (hopping)."""

    size_ms: int
    advance_ms: int
    grace_ms: int

    def starts_of(self, time: int) -> range:
        """Return the starts of all windows that hold a time, the earliest first."""
        last = time - time % self.advance_ms
        count = (self.size_ms - 1 - (time - last)) // self.advance_ms
        return range(last - count * self.advance_ms, last + 1, self.advance_ms)

    def is_closed(self, end: int, stream_time: int) -> bool:
        """Tell whether a window that ends at `end` takes no more records."""
        return end + self.grace_ms <= stream_time


@dataclass(frozen=True)
class SessionWindows:
    """Windows that last as long as records of a key are no farther apart than a gap."""

    gap_ms: int
    grace_ms: int

    def is_closed(self, end: int, stream_time: int) -> bool:
        """Tell whether a session whose last record is at `end` takes no more records."""
        return end + self.gap_ms + self.grace_ms < stream_time


@dataclass
class Session(Generic[AggregateT]):
    """A session: the times of its first and last record, in ms, and what was aggregated."""

    start: int
    end: int
    value: AggregateT


def tumbling(size_s: float, *, grace_s: float = 0.0) -> TimeWindows:
    """Return windows that follow each other without a gap; raises ConfigError."""
    return hopping(size_s, size_s, grace_s=grace_s)


def hopping(size_s: float, advance_s: float, *, grace_s: float = 0.0) -> TimeWindows:
    """Return windows of which one begins every `advance_s` seconds; raises ConfigError."""
    size, advance = _ms("size_s", size_s, 1), _ms("advance_s", advance_s, 1)
    if advance > size:
        raise ConfigError("windows: advance_s is at most size_s, or records would be in none")
    return TimeWindows(size, advance, _ms("grace_s", grace_s, 0))


def sessions(gap_s: float, *, grace_s: float = 0.0) -> SessionWindows:
    """Return windows that end when nothing comes for `gap_s` seconds; raises ConfigError."""
    return SessionWindows(_ms("gap_s", gap_s, 1), _ms("grace_s", grace_s, 0))


def add_to_sessions(
    known: list[Session[AggregateT]],
    time: int,
    gap_ms: int,
    first: Callable[[], AggregateT],
    add: Callable[[AggregateT], AggregateT],
    merge: Callable[[AggregateT, AggregateT], AggregateT],
) -> tuple[Session[AggregateT], list[Session[AggregateT]]]:
    """Put a record into one of a key's sessions, which may join others; changes `known`.

    Returns the session, and those that are no more because they are part of it. `known` is in the
    order of time, and so is the result.
    """
    near = [each for each in known if each.start - gap_ms <= time <= each.end + gap_ms]
    joined = Session(time, time, near[0].value if near else first())
    for each in near:
        joined.start, joined.end = min(joined.start, each.start), max(joined.end, each.end)
    for each in near[1:]:
        joined.value = merge(joined.value, each.value)
    joined.value = add(joined.value)
    known[:] = sorted([*(each for each in known if each not in near), joined],
                      key=lambda each: each.start)  # fmt: skip
    gone = [each for each in near if (each.start, each.end) != (joined.start, joined.end)]
    return joined, gone


def _ms(name: str, seconds: float, least: int) -> int:
    if not least / 1000 <= seconds <= 1e9:
        raise ConfigError(f"windows: {name} is {least / 1000:g} to 1e9 seconds, not {seconds:g}")
    return round(seconds * 1000)
