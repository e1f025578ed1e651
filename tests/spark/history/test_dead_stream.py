"""A stream of Spark that ends without passing on why: the job ends, so that it starts again."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from spark.history.stream_query import StreamDied, await_end, check_fatal
from spark.runtime.watched import watched
from tests.spark.history.test_compaction import rows_of
from tests.spark.running import Running, append_fixes, make_fix

START_MS: Final = 1_760_000_000_000

#: The error of the second batch is one that Spark searches with a regular expression that recurses
#: for each character, if it takes the query for one that is stopping: its stack overflows outside
#: of what catches a query's errors. With `dead` the query counts as one that runs, as it does when
#: what comes after that fails as well.
_PROGRAM: Final = """
import sys, threading, time
from spark.history import job
from spark.history.job import HistoryJob
from waylog.cli import main

commit, await_end, kind = HistoryJob._commit_batch, job.await_end, sys.argv.pop(1)
queries, may_ask = [], threading.Event()
may_ask.set()

def noted(query, *arguments, **named):
    queries.append(query)
    ask = query.awaitTermination
    query.awaitTermination = lambda seconds: may_ask.wait() and ask(seconds)
    return await_end(query, *arguments, **named)

def commit_or_die(self, frame, number):
    if not number:
        return commit(self, frame, number)
    [query] = queries
    execution = query._jsq.streamingQuery()
    state, runs = execution.state(), execution.state().get()
    if kind == "dead":
        may_ask.clear()
        time.sleep(1.5)  # what has been asked before has been answered by then
    runtime = frame.sparkSession._jvm.org.apache.spark.sql.execution.streaming.runtime
    state.set(getattr(getattr(runtime, "TERMINATED$"), "MODULE$"))

    def revive():
        while execution.queryExecutionThread().isAlive():
            time.sleep(0.01)
        state.set(runs)
        may_ask.set()

    if kind == "dead":
        threading.Thread(target=revive, daemon=True).start()
    raise RuntimeError(
        "py4j.protocol.Py4JJavaError: An error occurred while calling" + " o" * 200_000
    )

HistoryJob._commit_batch, job.await_end = commit_or_die, noted
sys.exit(main(sys.argv[1:]))
"""


class Job(Running):
    """`waylog history run` whose stream dies in its second batch."""

    def __init__(self, kind: str, *words: str) -> None:
        self._kind = kind
        super().__init__(*words)

    def command(self, arguments: tuple[str, ...]) -> list[str]:
        """Return the command of the process."""
        return [sys.executable, "-c", _PROGRAM, self._kind, *arguments]


@pytest.mark.spark
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        pytest.param("silent", "Spark's stream has ended without a word", marks=pytest.mark.long),
        ("dead", "the thread of Spark's stream has ended without a word"),
    ],
)
def test_a_stream_whose_thread_has_died_ends_the_job(
    kind: str, told: str, log: str, tmp_path: Path
) -> None:
    out = tmp_path / "history"
    words = ("history", "run", "--bootstrap-servers", log, "--out", str(out))
    append_fixes(log, [make_fix("demo/phone", START_MS + number * 1000) for number in range(100)])
    job = Job(kind, *words, "--trigger-seconds", "0.3", "--batch-rows", "60")
    try:
        job.await_line("batch 0:", timeout_s=200)
        assert job.process.wait(60) == 1, job.said
        assert job.said.endswith(
            f"waylog history: {told}; start the history again, nothing is lost\n"
        )
        assert "StackOverflowError" in job.said
    finally:
        job.close()
    again = Running(*words, "--engine", "arrow", "--once")
    try:
        assert again.process.wait(60) == 0, again.said
    finally:
        again.close()
    assert len(rows_of(out)) == 100


class Query:
    """A streaming query, as far as it is asked."""

    def __init__(self, ended: list[bool], message: str) -> None:
        self._ended = ended
        self.status = {"message": message}
        self._jsq: Any = None  # as of a Spark that does not show its thread

    def awaitTermination(self, _: int) -> bool:
        return self._ended.pop(0)


def wait_for(ended: list[bool], message: str, *, once: bool) -> None:
    query: Any = Query(ended, message)
    await_end(query, threading.Event(), lambda: None, once=once)


def test_only_a_query_that_ends_in_order_is_done() -> None:
    wait_for([False, True], "Stopped", once=True)
    for message, once in (("Stopped", False), ("Processing new data", True)):
        with pytest.raises(StreamDied):
            wait_for([False, True], message, once=once)


def test_after_an_error_of_the_jvm_itself_nothing_goes_on() -> None:
    with pytest.raises(StreamDied, match=r"ended with java\.lang\.OutOfMemoryError"):
        check_fatal(
            RuntimeError("[STREAM_FAILED] ...: java.lang.OutOfMemoryError: Java heap space")
        )
    check_fatal(RuntimeError("java.lang.IllegalStateException: x"))


def test_whatever_ends_the_work_is_passed_on() -> None:
    def work() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        watched("test", work, lambda: None, 0.1)
