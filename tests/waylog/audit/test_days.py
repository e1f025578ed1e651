"""Days in time zones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from waylog.audit.days import parse_day
from waylog.config import ConfigError

HOUR_MS = 3_600_000
NOW_MS = round(datetime(2026, 11, 28, 23, 30, tzinfo=UTC).timestamp() * 1000)


def test_a_day_is_that_of_the_zone() -> None:
    assert parse_day("today", "UTC", NOW_MS).date == "2026-11-28"
    vaduz = parse_day("today", "Europe/Vaduz", NOW_MS)
    assert vaduz.date == "2026-11-29"
    assert datetime.fromtimestamp(vaduz.from_ms / 1000, UTC).hour == 23
    assert parse_day("yesterday", "Europe/Vaduz", NOW_MS).date == "2026-11-28"


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)]
)
def test_a_day_is_longer_or_shorter_where_clocks_change(day: str, hours: int) -> None:
    found = parse_day(day, "Europe/Vaduz", NOW_MS)
    assert found.to_ms - found.from_ms == hours * HOUR_MS


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "2026-11-28T00:00", "9999-12-31"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"day|begun"):
        parse_day(text, "UTC", NOW_MS)


@pytest.mark.parametrize("zone", ["", "Nowhere/Else", "../../etc/passwd", "Europe", "a\0b"])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="time zone"):
        parse_day("today", zone, NOW_MS)
