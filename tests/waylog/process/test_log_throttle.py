"""Messages that are logged every ten seconds at most."""

from __future__ import annotations

from waylog.process.log_throttle import LogThrottle


def test_the_first_is_said_and_later_how_many_were_not() -> None:
    seldom = LogThrottle()
    times = (0.0, 1.0, 9.9, 10.0, 11.0, 20.0, 1_000.0)
    assert [seldom.count(each) for each in times] == [0, None, None, 2, None, 1, 0]
