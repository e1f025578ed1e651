"""Time zones by name, and the midnights of their days."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

from waylog.config import ConfigError


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone of the IANA database; raises ConfigError."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError is one
        raise ConfigError(
            f"{name[:60]!r} is not a time zone: a name as Europe/Vaduz or UTC is expected (the "
            "package tzdata brings them where the system has none)"
        ) from None


def midnight_ms(day: date, zone: ZoneInfo) -> int:
    """Return when a day begins, in ms since 1970 UTC; where clocks change a day has 23 or 25 hours.

    Raises OverflowError and ValueError for a day that no clock has.
    """
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
