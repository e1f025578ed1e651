"""Services and commands whose user lacks a right say which one, and can be stopped meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.secured_log import SecuredLog, secured_log
from tests.spark.running import Running, append_fixes, make_fix
from waylog.kafka.topics import LOCATION

#: A signal that is not lost while everything runs on two busy cores.
STOPPED_WITHIN_S = 10
HISTORY = ("history", "run", "--engine", "arrow")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SecuredLog]:
    with secured_log(tmp_path / "broker") as log:
        yield log


def start(log: SecuredLog, *words: str) -> Running:
    return Running(*words, "--bootstrap-servers", log.login, environment=log.environment())


def forbidden(resource: str, right: str) -> str:
    return f"{resource} is forbidden: .* needs the right {right} on it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_history_that_may_not_read_erasures_says_so_and_heeds_a_signal(
    log: SecuredLog, tmp_path: Path, number: signal.Signals
) -> None:
    log.allow("topic", LOCATION, "read")
    job = start(log, *HISTORY, "--out", str(tmp_path / "history"))
    try:
        job.await_line(forbidden("topic erasure", "READ"))
        sent = time.monotonic()
        job.process.send_signal(number)
        assert job.process.wait(STOPPED_WITHIN_S) == 0
        assert time.monotonic() - sent < STOPPED_WITHIN_S
        assert "history stopped: 0 fixes" in job.said
        assert "Traceback" not in job.said
    finally:
        job.close()


def test_a_history_waits_for_the_right_to_read_erasures_and_goes_on_with_it(
    log: SecuredLog, tmp_path: Path
) -> None:
    log.allow("topic", LOCATION, "read")
    append_fixes(log.plaintext, [make_fix("demo/phone", 1_760_000_000_000)])
    job = start(log, *HISTORY, "--out", str(tmp_path / "history"), "--trigger-seconds", "0.2")
    try:
        job.await_line(forbidden("topic erasure", "READ"))
        log.allow("topic", "erasure", "read")
        job.await_line("batch 0: 1 fixes")
        assert job.said.count("not ready: ") == 1
        assert job.terminate() == 0
    finally:
        job.close()


@pytest.mark.parametrize("topic", [LOCATION, "erasure"])
def test_once_a_history_without_a_right_ends_with_one_line(
    log: SecuredLog, tmp_path: Path, topic: str
) -> None:
    if topic != LOCATION:
        log.allow("topic", LOCATION, "read")
    job = start(log, *HISTORY, "--once", "--out", str(tmp_path / "history"))
    try:
        assert job.process.wait(60) == 1
        job.await_line(forbidden(f"topic {topic}", "READ"))
        assert job.said.startswith("waylog history: ")
        assert job.said.count("\n") == 1, job.said
    finally:
        job.close()


def test_a_history_whose_reads_are_forbidden_while_it_runs_stops_at_a_signal(
    log: SecuredLog, tmp_path: Path
) -> None:
    log.allow("topic", LOCATION, "describe")
    log.allow("topic", "erasure", "read")
    append_fixes(log.plaintext, [make_fix("demo/phone", 1_760_000_000_000)])
    job = start(log, *HISTORY, "--out", str(tmp_path / "history"), "--trigger-seconds", "0.2")
    try:
        job.await_line(forbidden("topic location", "READ"))
        assert job.terminate(STOPPED_WITHIN_S) == 0
        assert "Traceback" not in job.said
    finally:
        job.close()


def test_a_resolver_names_each_right_that_is_missing_and_stops_cleanly(log: SecuredLog) -> None:
    job = start(log, "resolver")
    try:
        line = job.await_line(forbidden("topic location", "READ"))
        assert "topic address is forbidden" in line
        log.allow("topic", LOCATION, "read")
        log.allow("topic", "address", "read")
        job.await_line(forbidden("topic erasure", "READ"))
        log.allow("topic", "erasure", "read")
        job.await_line(forbidden("group resolver", "READ"))
        log.allow("group", "resolver", "read")
        append_fixes(log.plaintext, [make_fix("demo/phone", 1_760_000_000_000)])
        job.await_line(forbidden("topic address", "WRITE"))
        assert job.terminate() == 0, job.said
        assert "resolver stopped" in job.said
        for word in ("Traceback", "FATAL", "waiting for the topic"):
            assert word not in job.said
    finally:
        job.close()


def test_producing_without_the_right_is_one_line(log: SecuredLog, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    log.allow("topic", LOCATION, "describe")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "waylog.cli", "produce", LOCATION),
            *("--bootstrap-servers", log.login, "--command-config", str(log.properties())),
            *("--input", str(lines)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 2, done.stderr
    acknowledged, told = done.stderr.splitlines()
    assert acknowledged == "0 of 2 records acknowledged"
    assert "topic location is forbidden" in told and "the right WRITE" in told
