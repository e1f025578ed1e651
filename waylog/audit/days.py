"""Days, as people name them, in a time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from waylog.config import ConfigError


class Day(NamedTuple):
    """A day of a time zone: from_ms <= t < to_ms, in ms since 1970 UTC."""

    date: str  # YYYY-MM-DD
    timezone: str
    from_ms: int
    to_ms: int


def parse_day(text: str, timezone: str, now_ms: int) -> Day:
    """Return the day for `today`, `yesterday` or YYYY-MM-DD; raises ConfigError.

    A day has 23 or 25 hours where the clocks change.
    """
    zone = _zone(timezone)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
    try:
        if text in {"today", "yesterday"}:
            day = today - timedelta(days=text == "yesterday")
        else:
            day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
        from_ms, to_ms = _midnight_ms(day, zone), _midnight_ms(day + timedelta(days=1), zone)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text[:40]!r} is not a day: YYYY-MM-DD, today or yesterday is expected"
        ) from None
    if from_ms > now_ms:
        raise ConfigError(f"{day.isoformat()} has not begun yet in {timezone}")
    return Day(day.isoformat(), timezone, from_ms, to_ms)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError is one
        raise ConfigError(
            f"{name[:60]!r} is not a time zone: a name as Europe/Vaduz or UTC is expected (the "
            "package tzdata brings them where the system has none)"
        ) from None


def _midnight_ms(day: date, zone: ZoneInfo) -> int:
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
