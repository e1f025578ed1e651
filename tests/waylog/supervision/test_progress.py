"""The time that a process has before it is taken for one that hangs."""

from __future__ import annotations

import pytest

from waylog.supervision.progress import START_LONGEST_S, WAITING_S, Progress, extension_s

START_S = 60.0
WATCHDOG_S = 20.0


def silence_s(progress: Progress) -> int:
    """Return the seconds of silence after which a process is taken for one that hangs."""
    for seconds in range(100_000):
        if progress.fault() is not None:
            return seconds
        progress.passed(1.0)
    raise AssertionError("for ever")


def test_each_start_has_its_time() -> None:
    progress = Progress(START_S, WATCHDOG_S)
    progress.passed(START_S - 1)
    assert progress.fault() is None
    progress.begin()
    assert silence_s(progress) == START_S


def test_the_time_doubles_while_starts_are_too_long_until_one_gets_to_its_end() -> None:
    progress = Progress(START_S, WATCHDOG_S)
    waited = []
    for _ in range(8):
        progress.begin()
        waited.append(silence_s(progress))
    assert waited == [60, 120, 240, 480, 960, 1920, START_LONGEST_S, START_LONGEST_S]
    progress.begin()
    progress.heard([b"READY=1"])
    progress.begin()
    assert silence_s(progress) == START_S


def test_a_ready_process_that_never_reports_progress_is_not_watched() -> None:
    progress = Progress(START_S, WATCHDOG_S)
    progress.heard([b"READY=1"])
    progress.passed(1e9)
    assert progress.fault() is None
    progress.heard([b"STATUS=not ready: no log"])
    progress.passed(1e9)
    assert progress.fault() is None


def test_a_process_that_has_reported_progress_is_watched_when_it_is_ready_too() -> None:
    progress = Progress(START_S, WATCHDOG_S)
    progress.heard([b"WATCHDOG=1"])
    progress.heard([b"READY=1"])
    assert silence_s(progress) == WATCHDOG_S


@pytest.mark.parametrize("first", [[b"READY=1"], [b"STATUS=reading"], [b"EXTEND_TIMEOUT_USEC=9"]])
def test_a_process_that_has_reported_progress_has_to_go_on(first: list[bytes]) -> None:
    progress = Progress(START_S, WATCHDOG_S)
    progress.heard(first)
    for _ in range(10):
        progress.heard([b"WATCHDOG=1"])
        progress.passed(WATCHDOG_S - 1)
        assert progress.fault() is None
    # What else it says is no progress.
    progress.heard([b"STATUS=not ready: no log"])
    assert silence_s(progress) == 1
    assert progress.fault() == "has made no progress for 20 s"


def test_a_start_that_says_what_it_does_has_its_time_anew() -> None:
    progress = Progress(START_S, WATCHDOG_S)
    for _ in range(10):
        progress.passed(START_S - 1)
        progress.heard([b"STATUS=reading the log"])
    assert silence_s(progress) == START_S
    assert progress.fault() == "is not ready 650 s after its start"


def test_a_start_that_says_why_it_waits_may_wait_long() -> None:
    progress = Progress(START_S, WATCHDOG_S)
    progress.heard([b"STATUS=not ready: no log"])
    progress.passed(WAITING_S / 2)
    progress.heard([b"STATUS=reading the log"])
    assert silence_s(progress) == START_S
    progress.begin()
    progress.heard([b"STATUS=not ready: no log"])
    assert silence_s(progress) == WAITING_S


@pytest.mark.parametrize(("asked_s", "given_s"), [(200, 200), (10, START_S)])
def test_a_start_that_asks_for_time_gets_it_and_never_has_less(
    asked_s: int, given_s: float
) -> None:
    progress = Progress(START_S, WATCHDOG_S)
    progress.heard([b"EXTEND_TIMEOUT_USEC=%d000000" % asked_s])
    assert silence_s(progress) == given_s


@pytest.mark.parametrize("value", [b"", b"-5", b"soon", b"9" * 400])
def test_nonsense_asks_for_nothing(value: bytes) -> None:
    assert extension_s([b"EXTEND_TIMEOUT_USEC=" + value]) is None
    assert extension_s([value]) is None
