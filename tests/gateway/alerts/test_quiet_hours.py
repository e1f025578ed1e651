"""Quiet hours by the clock of a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.alerts.quiet_hours import QuietHours

VADUZ = ZoneInfo("Europe/Vaduz")


@pytest.mark.parametrize(
    ("begin", "end", "quiet", "loud"),
    [
        ("22:00", "07:00", ("22:00", "23:59", "00:00", "06:59"), ("07:00", "12:00", "21:59")),
        ("13:00", "14:30", ("13:00", "14:29"), ("12:59", "14:30", "00:00")),
    ],
)
@pytest.mark.parametrize("date", ["2026-01-15", "2026-07-15"])
def test_hours_are_those_of_the_zone(
    begin: str, end: str, quiet: tuple[str, ...], loud: tuple[str, ...], date: str
) -> None:
    hours = QuietHours(begin, end, "Europe/Vaduz")
    hours.check()
    for times, covered in ((quiet, True), (loud, False)):
        for time in times:
            moment = datetime.fromisoformat(f"{date}T{time}").replace(tzinfo=VADUZ)
            assert hours.cover(round(moment.timestamp() * 1000)) is covered, time
