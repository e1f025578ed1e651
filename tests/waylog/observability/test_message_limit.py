"""How much of a process's log one kind of message takes."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from tests.manual_clock import ManualClock
from waylog.observability.log_lines import LineFormatter
from waylog.observability.message_limit import BURST, PER_SECOND, MessageLimit

SCRIPT = """
import logging
from waylog.observability.log_lines import configure_logging

configure_logging(line="%(message)s")
logger = logging.getLogger("test")
for number in range(5000):
    logger.info("member %d joins", number)
    if number % 1000 == 0:
        logger.warning("the disk is full")
"""


def test_one_kind_of_message_leaves_the_others_their_room() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    lines = process.stderr.decode().splitlines()
    joined = [line for line in lines if line.startswith("member")]
    assert BURST <= len(joined) < 5000
    assert lines.count("the disk is full") == 5


class Log(logging.Handler):
    """Keeps what passes the limit."""

    def __init__(self, limit: MessageLimit) -> None:
        super().__init__()
        self.addFilter(limit)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.records.append(record)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log(MessageLimit(clock))


@pytest.fixture
def logger(log: Log) -> logging.Logger:
    logger = logging.Logger("of the test", logging.INFO)
    logger.addHandler(log)
    return logger


def test_what_was_left_out_is_told_when_there_is_room_again(
    log: Log, logger: logging.Logger, clock: ManualClock
) -> None:
    def say(count: int) -> int:
        before = len(log.records)
        for _ in range(count):
            logger.info("again")
        return len(log.records) - before

    assert say(BURST + 7) == BURST
    clock.now += 1.0
    assert say(100) == PER_SECOND
    told = [vars(each)["left_out"] for each in log.records]
    assert told == [0] * BURST + [7] + [0] * 19
    clock.now += 10_000.0
    assert say(BURST + 1) == BURST


def test_a_line_says_how_many_were_left_out_before_it(
    log: Log, logger: logging.Logger, clock: ManualClock
) -> None:
    for pause_s in (0.0,) * (BURST + 3) + (0.06,) * 2:
        clock.now += pause_s
        logger.info("%s again", "member")
    formatter = LineFormatter("%(message)s")
    assert [formatter.format(each) for each in log.records[BURST - 1 :]] == [
        "member again",
        "member again (3 more like it before)",
        "member again",
    ]


def test_a_traceback_takes_the_room_of_ten(log: Log, logger: logging.Logger) -> None:
    for _ in range(BURST):
        try:
            raise ValueError
        except ValueError:
            logger.exception("failed")
    assert len(log.records) == BURST // 10


def test_critical_messages_are_all_written(log: Log, logger: logging.Logger) -> None:
    for _ in range(BURST + 5):
        logger.critical("the end")
    assert len(log.records) == BURST + 5


def test_each_line_of_code_has_its_own_room(log: Log, logger: logging.Logger) -> None:
    for _ in range(BURST):
        logger.info("one")
        logger.info("two")
    assert len(log.records) == 2 * BURST


def test_lines_of_two_files_have_their_own_room(log: Log, logger: logging.Logger) -> None:
    for file in ("one.py", "two.py"):
        code = compile(f"for _ in range({BURST}): logger.info('again')", file, "exec")
        exec(code, {"logger": logger})
    assert len(log.records) == 2 * BURST


def test_threads_share_the_room(log: Log, logger: logging.Logger) -> None:
    def say() -> None:
        for _ in range(BURST):
            logger.info("again")

    threads = [threading.Thread(target=say) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(log.records) == BURST
