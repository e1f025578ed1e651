"""A history job that hangs is noticed by its supervisor, with either engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.consumers.running import await_condition
from tests.spark.running import append_fixes, kill_group, make_fix
from waylog.history.erasures import append_erasures

pytestmark = pytest.mark.early

START_MS: Final = 1_760_000_000_000

#: Its steps may take two seconds; a file named `hang` makes a batch wait for ever.
_PROGRAM: Final = """
import sys, time
from pathlib import Path
from spark.history import job
from spark.history.files import HistoryFiles
from waylog.cli import main

commit, hang = HistoryFiles.commit, Path(sys.argv.pop(1))

def commit_or_hang(self, landed):
    while landed and hang.exists():
        time.sleep(0.1)
    return commit(self, landed)

HistoryFiles.commit = commit_or_hang
job._STEP_MAX_S = 2.0
sys.exit(main(sys.argv[1:]))
"""


#: Work of a thread for which a file named `hang` waits for ever; a stop may take two seconds.
_THREADS_PROGRAM: Final = """
import importlib, sys, time
from pathlib import Path
from spark.history import job
from spark.history.health import thread_steps
from waylog.cli import main
from waylog.process import stop_limit

hang, module = Path(sys.argv.pop(1)), importlib.import_module(sys.argv.pop(1))
name = sys.argv.pop(1)
work = getattr(module, name)

def work_or_hang(*arguments, **named):
    while hang.exists():
        time.sleep(0.1)
    return work(*arguments, **named)

setattr(module, name, work_or_hang)
thread_steps.TOLD_AFTER_S = job._PLACES_MAX_S = 2.0
stop_limit.STOP_MAX_S = 2.0
sys.exit(main(sys.argv[1:]))
"""


def await_message(supervisor: socket.socket, wanted: bytes) -> None:
    """Wait for a message that begins so."""
    supervisor.settimeout(120)
    while not supervisor.recv(1000).startswith(wanted):
        pass


def await_said(said: Path, words: str) -> None:
    """Wait until a process has written these words to a file."""
    await_condition(lambda: words in said.read_text(), 120, words)


def await_silence(supervisor: socket.socket) -> None:
    """Wait until no report has come for a second; it is due ten times a second."""
    supervisor.settimeout(1)
    try:
        for _ in range(600):
            supervisor.recv(1000)
    except TimeoutError:
        return
    pytest.fail("it goes on reporting progress")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "engine", ["arrow", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])]
)
def test_a_batch_that_hangs_ends_the_reports_of_progress(
    engine: str, log: str, tmp_path: Path, supervisor: socket.socket
) -> None:
    hang = tmp_path / "hang"
    words = (
        *("history", "run", "--bootstrap-servers", log, "--out", str(tmp_path / "history")),
        *("--engine", engine, "--trigger-seconds", "0.3"),
    )
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(hang), *words],
        env=os.environ | {"NOTIFY_SOCKET": supervisor.getsockname(), "WATCHDOG_USEC": "300000"},
        start_new_session=True,
    ) as process:
        try:
            await_message(supervisor, b"READY=1")
            # Without anything to do it reports progress for longer than a step may take.
            for _ in range(40):
                await_message(supervisor, b"WATCHDOG=1")
            hang.touch()
            append_fixes(log, [make_fix("demo/phone", START_MS)])
            await_silence(supervisor)
            hang.unlink()
            await_message(supervisor, b"WATCHDOG=1")
        finally:
            kill_group(process.pid)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("module", "name", "told"),
    [
        ("spark.history.erasure_applier", "erase_history", b"erasing devices from the history"),
        ("spark.places.job", "write_places", b"computing places"),
    ],
)
def test_a_thread_that_hangs_is_told_and_does_not_keep_the_process(
    module: str, name: str, told: bytes, log: str, tmp_path: Path, supervisor: socket.socket
) -> None:
    hang = tmp_path / "hang"
    words = (
        *("history", "run", "--bootstrap-servers", log, "--out", str(tmp_path / "history")),
        *("--engine", "arrow", "--trigger-seconds", "0.3", "--places", str(tmp_path / "places")),
        *("--places-interval", "0.1"),
    )
    said = tmp_path / "said"
    with (
        said.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", _THREADS_PROGRAM, str(hang), module, name, *words],
            env=os.environ | {"NOTIFY_SOCKET": supervisor.getsockname(), "WATCHDOG_USEC": "300000"},
            start_new_session=True,
            stderr=stderr,
        ) as process,
    ):
        try:
            await_message(supervisor, b"READY=1")
            hang.touch()
            append_fixes(log, [make_fix("demo/phone", START_MS)])
            append_erasures(log, ["other/phone"], START_MS)
            await_message(supervisor, b"STATUS=not ready: " + told + b" has made no step for ")
            # What goes on is told as well.
            hang.unlink()
            await_message(supervisor, b"STATUS=ready")
            hang.touch()
            append_fixes(log, [make_fix("demo/phone", START_MS + 1)])
            append_erasures(log, ["other/phone"], START_MS + 1)
            await_said(said, "a thread hangs: no more progress is reported")
            await_silence(supervisor)
            process.terminate()
            status = process.wait(200)
            if name == "erase_history":  # a stop waits for it
                await_said(said, "not stopped within 2 s: the process ends without waiting")
                assert status == 1
        finally:
            kill_group(process.pid)
