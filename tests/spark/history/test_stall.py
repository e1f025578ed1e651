"""A Spark whose Python never comes up: it is told, and the history goes on without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.spark.history.test_compaction import rows_of
from tests.spark.running import ROOT, Running, append_fixes, make_fix
from waylog.history.job_report import read_report
from waylog.observability.telemetry import now_ms

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(500)]

START_MS: Final = 1_760_000_000_000

#: Python's workers are started by a program that waits as long as there is a file.
_PROGRAM: Final = """
import sys
sys.executable = sys.argv.pop(1)
from waylog.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Job(Running):
    """`waylog history run` whose workers of Spark are kept from starting by a file."""

    def __init__(self, worker: Path, *words: str) -> None:
        self._code = (str(worker), *words)
        super().__init__(*words)

    def command(self, arguments: tuple[str, ...]) -> list[str]:
        """Return the command of the process."""
        return [sys.executable, "-c", _PROGRAM, *self._code]


@pytest.fixture
def held(tmp_path: Path) -> Path:
    held = tmp_path / "held"
    held.touch()
    return held


def program(folder: Path, held: Path, pattern: str) -> Path:
    """Return a Python that starts when nothing is held, if its arguments are like a pattern."""
    path = folder / "python"
    path.write_text(
        f"""#!/bin/sh
case "$*" in {pattern}) while [ -e '{held}' ]; do sleep 0.2; done;; esac
exec '{sys.executable}' "$@"
"""
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def jobs() -> Iterator[list[Running]]:
    started: list[Running] = []
    yield started
    for job in started:
        job.close()


def fixes(first: int, count: int) -> list[object]:
    return [make_fix("demo/phone", START_MS + n * 60_000) for n in range(first, first + count)]


def start(worker: Path, jobs: list[Running], log: str, out: Path, *words: str) -> Job:
    job = Job(
        worker,
        *("history", "run", "--bootstrap-servers", log, "--out", str(out)),
        *("--trigger-seconds", "0.5", "--compact-interval", "0", *words),
    )
    jobs.append(job)
    return job


def ids(out: Path) -> list[str]:
    return [row["id"] for row in rows_of(out)]


def test_a_stall_is_told_with_its_reason_and_over_when_spark_writes(
    log: str, held: Path, jobs: list[Running], tmp_path: Path
) -> None:
    out = tmp_path / "history"
    worker = program(tmp_path, held, "*python_streaming_source_runner*")
    append_fixes(log, fixes(0, 50))  # type: ignore[arg-type]
    job = start(worker, jobs, log, out, "--stalled-after", "30")
    line = job.await_line("not ready: .*nothing has been written for", timeout_s=150)
    assert "records wait" in line
    assert "connect back" in line
    # The gateways of the machine hear of it, too.
    report = read_report(out)
    while report is None or report.trouble is None or "records wait" not in report.trouble:
        time.sleep(0.1)
        report = read_report(out)
    assert report.waiting_s >= 30
    assert report.wrote is None
    held.unlink()
    job.await_line("ready again", timeout_s=150)
    job.await_line("batch 0: 50 fixes", timeout_s=10)
    while (report := read_report(out)) is None or report.trouble or report.wrote is None:
        time.sleep(0.1)
    assert abs(report.wrote - now_ms()) < 60_000
    assert report.waiting_s < 10
    assert job.terminate() == 0
    assert read_report(out) is None
    assert len(ids(out)) == 50


def test_arrow_goes_on_and_each_fix_is_there_once_whoever_is_killed(
    log: str, held: Path, jobs: list[Running], tmp_path: Path
) -> None:
    """Here Spark does not even fail: it waits for its Python without a limit."""
    out = tmp_path / "history"
    worker = program(tmp_path, held, "*")
    words = ("--stalled-after", "8", "--on-stall", "arrow", "--batch-rows", "40")
    append_fixes(log, fixes(0, 100))  # type: ignore[arg-type]
    # Spark writes first.
    held.unlink()
    job = start(worker, jobs, log, out, "--batch-rows", "40")
    job.await_line("batch 2:", timeout_s=150)
    job.kill()
    # It does not come up, and the other engine is killed within its batches.
    held.touch()
    append_fixes(log, fixes(100, 200))  # type: ignore[arg-type]
    job = start(worker, jobs, log, out, *words)
    line = job.await_line("the history goes on with --engine arrow", timeout_s=150)
    assert "Spark has not started the stream yet" in line
    job.await_line("batch 1:", timeout_s=60)
    job.kill()
    assert len(ids(out)) >= 140
    job = start(worker, jobs, log, out, *words)
    job.await_line("the history goes on with --engine arrow", timeout_s=150)
    append_fixes(log, fixes(300, 50))  # type: ignore[arg-type]
    job.await_line("ready again", timeout_s=60)
    while (report := read_report(out)) is None or report.engine != "arrow":
        time.sleep(0.1)
    # Nothing of what Spark has finished is read again.
    assert "written before" not in job.said or _repeated(job) <= 80
    job.kill()
    # Spark has the last word.
    held.unlink()
    append_fixes(log, fixes(350, 50))  # type: ignore[arg-type]
    job = start(worker, jobs, log, out, "--once")
    assert job.process.wait(200) == 0, job.said
    found = ids(out)
    assert len(found) == len(set(found)) == 400


def _repeated(job: Running) -> int:
    import re

    return sum(int(number) for number in re.findall(r"(\d+) written before", job.said))


def test_arrow_goes_on_in_the_process_in_which_spark_has_written(
    log: str, held: Path, jobs: list[Running], tmp_path: Path
) -> None:
    out = tmp_path / "history"
    worker = program(tmp_path, held, "*")
    held.unlink()
    append_fixes(log, fixes(0, 100))  # type: ignore[arg-type]
    words = ("--stalled-after", "40", "--on-stall", "arrow", "--batch-rows", "40")
    job = start(worker, jobs, log, out, *words)
    job.await_line("batch 2:", timeout_s=150)
    held.touch()
    for process in workers_of(job):
        os.kill(process, signal.SIGKILL)
    append_fixes(log, fixes(100, 100))  # type: ignore[arg-type]
    job.await_line("the history goes on with --engine arrow", timeout_s=150)
    job.await_line("ready again", timeout_s=60)
    while len(ids(out)) < 200:
        time.sleep(0.1)
    assert job.terminate() == 0
    found = ids(out)
    assert len(found) == len(set(found)) == 200


def workers_of(job: Running) -> list[int]:
    """Return Spark's processes of Python in the group of a job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            group = int((folder / "stat").read_text().rpartition(")")[2].split()[2])
            words = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if group == job.process.pid and b"\0pyspark." in words:
            found.append(int(folder.name))
    assert found
    return found


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    for words, message in (
        (["--engine", "arrow", "--on-stall", "arrow"], "--on-stall is for --engine spark"),
        (["--once", "--on-stall", "arrow"], "--once ends with the error"),
        (["--stalled-after", "0"], "--stalled-after is more than 0"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "waylog.cli", "history", "run", *words],
            cwd=ROOT,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert message in done.stderr
