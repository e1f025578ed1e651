"""Days of a time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final

from waylog.time_zones import find_zone, midnight_ms

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
#: Time zones differ from UTC by whole quarters of an hour since 1972, so that each is of one day.
_QUARTER_MS: Final = 15 * 60_000
_QUARTERS_MAX: Final = 4096
#: The latest time that a calendar has days for; `datetime` ends with the year 9999.
_LATEST_MS: Final = 253_370_764_800_000  # 9999-01-01


class Calendar:
    """Tells the local date of a time."""

    def __init__(self, time_zone: str) -> None:
        """Raises ConfigError for a name that is not in the database of time zones."""
        self._zone = find_zone(time_zone)
        self.name: Final = time_zone
        self.date_of_quarter = lru_cache(_QUARTERS_MAX)(self._date_of_quarter)

    def date_of(self, time: int) -> str:
        """Return the date, YYYY-MM-DD, of a time in ms since 1970."""
        return self.date_of_quarter(time // _QUARTER_MS)

    def divided(self, begin: int, end: int) -> Iterator[tuple[str, float]]:
        """Yield the dates from one time to a later one, each with its part of the time."""
        first, last = self.date_of(begin), self.date_of(end)
        if first == last or end <= begin:
            yield last, 1.0
            return
        at = begin
        while at < end:
            until = min(end, self._end_of(self.date_of(at)))
            yield self.date_of(at), (until - at) / (end - begin)
            at = until

    def _date_of_quarter(self, quarter: int) -> str:
        time = min(max(quarter * _QUARTER_MS, 0), _LATEST_MS)
        return (_EPOCH + time * _MS).astimezone(self._zone).date().isoformat()

    def _end_of(self, day: str) -> int:
        return midnight_ms(date.fromisoformat(day) + timedelta(days=1), self._zone)
