"""When a job that writes nothing is told, and when it just has nothing to write."""

from __future__ import annotations

from spark.history.health.stall import Stall


def test_records_that_wait_for_too_long_are_told_with_what_is_known() -> None:
    stall = Stall(10.0, {0: 5, 1: 7})
    stall.log_ends({0: 5, 1: 8}, 100.0)
    assert stall.trouble(109.9) is None
    assert stall.waiting_s(109.0) == 9.0
    assert stall.trouble(110.0) == "nothing has been written for 10 s, and records wait"
    stall.in_phase("Spark is at: planning")
    told = stall.trouble(111.0)
    assert told is not None and told.endswith("for 11 s, and records wait; Spark is at: planning")
    stall.failed("no worker")
    told = stall.trouble(112.0)
    assert told is not None and told.endswith("records wait; no worker")


def test_more_records_do_not_begin_the_wait_anew() -> None:
    stall = Stall(10.0, {})
    for second in range(11):
        stall.log_ends({0: second + 1}, float(second))
    assert stall.trouble(10.0) is not None


def test_a_job_with_nothing_to_write_is_well_whatever_fails() -> None:
    stall = Stall(10.0, {0: 5})
    stall.log_ends({0: 5}, 0.0)
    stall.failed("the log is not there")
    assert stall.trouble(1000.0) is None


def test_a_new_partition_counts_from_its_beginning() -> None:
    stall = Stall(10.0, {0: 5})
    stall.log_ends({0: 5, 1: 0}, 0.0)
    assert stall.waiting_s(100.0) == 0.0
    stall.log_ends({0: 5, 1: 1}, 200.0)
    assert stall.waiting_s(203.0) == 3.0


def test_a_finished_batch_ends_the_wait_and_its_reason() -> None:
    stall = Stall(10.0, {})
    stall.log_ends({0: 5}, 0.0)
    stall.failed("no worker")
    stall.committed()
    stall.log_ends({0: 5}, 100.0)
    assert stall.trouble(1000.0) is None
    stall.log_ends({0: 6}, 1000.0)
    told = stall.trouble(1010.0)
    assert told is not None and "no worker" not in told


def test_where_it_is_not_known_what_is_written_only_later_records_wait() -> None:
    stall = Stall(10.0)
    stall.log_ends({0: 5}, 0.0)
    assert stall.trouble(1000.0) is None
    stall.log_ends({0: 6}, 1000.0)
    assert stall.waiting_s(1001.0) == 1.0


def test_what_is_learned_of_an_earlier_run_counts_from_then_on() -> None:
    stall = Stall(10.0)
    stall.log_ends({0: 5}, 0.0)
    stall.begins({0: 3})
    stall.log_ends({0: 5}, 50.0)
    assert stall.waiting_s(52.0) == 2.0
    # The stream starts again and again: the wait goes on.
    stall.begins({0: 3})
    assert stall.waiting_s(53.0) == 3.0
