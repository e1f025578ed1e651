"""A history job that is stopped while Spark is still starting."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.consumers.running import await_condition
from tests.spark.running import Running, append_fixes, child_jvm, make_fix

START_MS = 1_760_000_000_000


@pytest.fixture
def slow_java(tmp_path: Path) -> Path:
    """Create a Java home whose Java never finishes its start, and reports that it was called."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(
        'JAVA_VERSION="21.0.1"\nMODULES="java.base jdk.incubator.vector"\n'
    )
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\ntouch '{home}/called'\nread -r line\n")
    program.chmod(0o755)
    return home


def test_a_stop_does_not_wait_for_a_spark_that_is_starting(
    log: str, tmp_path: Path, slow_java: Path
) -> None:
    job = Running(
        *("history", "run", "--bootstrap-servers", log, "--out", str(tmp_path / "history")),
        environment=os.environ | {"WAYLOG_JAVA": str(slow_java)},
    )
    try:
        await_condition((slow_java / "called").exists, 60, "the start of Spark")
        assert job.terminate() == 0, job.said
        assert "history stopped: 0 fixes" in job.said
        assert "Traceback" not in job.said, job.said
    finally:
        job.close()


@pytest.mark.spark
@pytest.mark.long
def test_a_stop_leaves_no_traceback_of_sparks_workers(log: str, tmp_path: Path) -> None:
    job = Running(
        *("history", "run", "--bootstrap-servers", log, "--out", str(tmp_path / "history")),
        *("--places", str(tmp_path / "places"), "--trigger-seconds", "0.5"),
    )
    try:
        job.await_line("is written to")
        append_fixes(
            log, [make_fix("demo/phone", START_MS + number * 1000) for number in range(200)]
        )
        job.await_line(r"batch \d+: \d+ fixes")
        job.await_line(r"places of \d+ devices")
        assert job.terminate() == 0, job.said
        assert "Traceback" not in job.said, job.said
        assert "BrokenPipeError" not in job.said, job.said
    finally:
        job.close()


@pytest.mark.spark
def test_a_job_whose_spark_has_been_killed_ends_and_says_so(log: str, tmp_path: Path) -> None:
    job = Running(
        *("history", "run", "--bootstrap-servers", log, "--out", str(tmp_path / "history")),
        *("--trigger-seconds", "0.5"),
    )
    try:
        job.await_line("is written to")
        jvm = child_jvm(job.process.pid)
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        assert job.process.wait(200) == 1, job.said
        assert "Spark's JVM has ended with status -9" in job.said
    finally:
        job.close()
