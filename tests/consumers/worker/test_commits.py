"""When a transaction is committed next."""

from __future__ import annotations

import pytest

from consumers.worker.exactly_once import next_commit


def test_quick_commits_come_once_an_interval() -> None:
    assert next_commit(10.0, 10.01, 0.1) == pytest.approx(10.1)
    assert next_commit(10.0, 10.02, 0.1) == pytest.approx(10.1)


def test_slow_commits_take_a_fifth_of_the_time_and_wait_for_a_second_at_most() -> None:
    assert next_commit(10.0, 10.1, 0.1) == pytest.approx(10.5)
    assert next_commit(10.0, 10.25, 0.1) == pytest.approx(11.25)
    assert next_commit(10.0, 15.0, 0.1) == pytest.approx(16.0)
    assert next_commit(10.0, 10.3, 5.0) == pytest.approx(15.0)
