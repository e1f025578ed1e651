"""Hours of the day in which people are not told of events; sans-IO."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from waylog.config import ConfigError
from waylog.time_zones import find_zone

_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class BadQuietHours(ValueError):
    """The hours are none; the message says why."""


class QuietHours(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "until"}):
    """From a time of the clock until another one, over midnight if that is earlier."""

    begin: str  # HH:MM
    end: str  # HH:MM
    time_zone: str  # IANA's name

    def check(self) -> None:
        """Raise BadQuietHours."""
        for text in (self.begin, self.end):
            if _TIME.fullmatch(text) is None:
                raise BadQuietHours("from and until are times such as 22:30")
        if self.begin == self.end:
            raise BadQuietHours("from and until are the same time")
        self._zone()

    def cover(self, time_ms: int) -> bool:
        """Tell whether a time is in these hours."""
        local = datetime.fromtimestamp(time_ms / 1000, self._zone()).strftime("%H:%M")
        if self.begin < self.end:
            return self.begin <= local < self.end
        return local >= self.begin or local < self.end

    def _zone(self) -> ZoneInfo:
        try:
            return find_zone(self.time_zone)
        except ConfigError as error:
            raise BadQuietHours(str(error)) from None
