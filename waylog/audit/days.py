"""Days, as people name them, in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from waylog.config import ConfigError
from waylog.time_zones import find_zone, midnight_ms


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
    zone = find_zone(timezone)
    today = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).date()
    try:
        if text in {"today", "yesterday"}:
            day = today - timedelta(days=text == "yesterday")
        else:
            day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
        from_ms, to_ms = midnight_ms(day, zone), midnight_ms(day + timedelta(days=1), zone)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{text[:40]!r} is not a day: YYYY-MM-DD, today or yesterday is expected"
        ) from None
    if from_ms > now_ms:
        raise ConfigError(f"{day.isoformat()} has not begun yet in {timezone}")
    return Day(day.isoformat(), timezone, from_ms, to_ms)
