from __future__ import annotations

import logging
import subprocess
import sys
import threading
from functools import partial

import pytest

from waylog.process.threads import Rounds, start_thread, watch_thread_of

#: The main thread waits for the other one like a process that serves; it would wait for ever.
_PROGRAM = """
import logging, sys, threading
from waylog.process.threads import start_thread

def work():
    {work}

logging.basicConfig(format="%(levelname)s %(message)s")
start_thread(work, "upkeep", daemon={daemon})
threading.Event().wait()
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("daemon", [True, False])
@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("raise ValueError('torn')", "ValueError: torn"),
        ("sys.exit(0)", "SystemExit: 0"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise MemoryError", "MemoryError"),
        ("return", "CRITICAL thread upkeep has ended too early; this process ends"),
    ],
)
def test_the_unexpected_end_of_a_thread_ends_its_process(
    work: str, says: str, daemon: bool
) -> None:
    program = _PROGRAM.format(work=work, daemon=daemon)
    ended = run(program)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert ended.stderr.count("CRITICAL thread upkeep") == 1
    assert ("Traceback" in ended.stderr) == (work != "return")


@pytest.mark.parametrize("work", ["raise ValueError('torn')", "return"])
def test_the_end_of_a_librarys_thread_ends_the_process(work: str) -> None:
    program = f"""
import logging, threading, time
from waylog.process.threads import watch_thread_of
logging.basicConfig(format="%(levelname)s %(message)s")
def work():
    {work}
wait = threading.Event()
def start():
    threading.Thread(target=wait.wait, name="another", daemon=True).start()
    threading.Thread(target=lambda: (time.sleep(0.2), work()), name="client-1").start()
watch_thread_of(start, "client-", may_end=lambda: False)
threading.Event().wait()
"""
    ended = run(program)
    assert ended.returncode == 1
    assert (
        "CRITICAL thread watch of client-1 has ended too early; this process ends" in ended.stderr
    )
    assert ("ValueError: torn" in ended.stderr) == (work != "return")


def test_a_library_that_starts_no_such_thread_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="no thread client"):
        watch_thread_of(lambda: None, "client-", may_end=lambda: True)


def test_the_threads_of_a_library_may_end_after_a_stop(caplog: pytest.LogCaptureFixture) -> None:
    stopping = threading.Event()
    watch = watch_thread_of(
        threading.Thread(target=stopping.wait, name="client-1").start,
        "client-",
        may_end=stopping.is_set,
    )
    stopping.set()
    watch.join(60)
    assert not watch.is_alive()
    assert not caplog.records


def test_a_log_that_fails_keeps_no_process_alive() -> None:
    program = _PROGRAM.format(work="raise ValueError", daemon=True).replace(
        "logging.basicConfig", "logging.Logger.critical = None; logging.basicConfig"
    )
    ended = run(program)
    assert ended.returncode == 1


def test_a_daemon_may_fail_while_its_process_ends() -> None:
    program = """
import atexit, threading
from waylog.process.threads import start_thread
ending = threading.Event()
def work():
    ending.wait()
    raise RuntimeError("no new thread at interpreter shutdown")
thread = start_thread(work, "upkeep")
atexit.register(lambda: (ending.set(), thread.join()))
"""
    ended = run(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_thread_that_its_process_waits_for_fails_it_even_at_its_end() -> None:
    program = """
import logging, threading
from waylog.process.threads import start_thread
def work():
    threading.main_thread().join()
    raise ValueError("torn")
logging.basicConfig(format="%(levelname)s %(message)s")
start_thread(work, "upkeep", daemon=False)
"""
    ended = run(program)
    assert ended.returncode == 1
    assert "CRITICAL thread upkeep failed" in ended.stderr
    assert "ValueError: torn" in ended.stderr


def test_a_thread_may_end_after_a_stop(caplog: pytest.LogCaptureFixture) -> None:
    stopping = threading.Event()
    thread = start_thread(stopping.wait, "upkeep", may_end=stopping.is_set)
    assert thread.name == "upkeep"
    assert thread.daemon
    stopping.set()
    thread.join(60)
    assert not thread.is_alive()
    assert not caplog.records


def test_an_owner_may_do_something_else_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()
    start_thread(lambda: sys.exit(3), "upkeep", on_failure=failed.set).join(60)
    assert failed.is_set()
    [record] = caplog.records
    assert record.levelno == logging.CRITICAL
    assert record.exc_info


def test_only_a_new_failure_of_a_round_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    rounds = Rounds("packing")

    def fail(error: Exception) -> None:
        raise error

    for error in (ValueError("a"), ValueError("a"), ValueError("b"), KeyError("b")):
        assert not rounds.once(partial(fail, error))
    assert len(caplog.records) == 3
    assert rounds.once(lambda: None)
    assert not rounds.once(lambda: fail(KeyError("b")))
    assert len(caplog.records) == 4
    assert all(each.getMessage() == "packing failed; it is tried again" for each in caplog.records)
    assert all(each.exc_info for each in caplog.records)


def test_an_expected_failure_has_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise FileNotFoundError("no such file")

    rounds = Rounds("packing", expected=(OSError,))
    assert not rounds.once(fail)
    assert not rounds.once(fail)
    [record] = caplog.records
    assert record.getMessage() == "packing failed; it is tried again: no such file"
    assert not record.exc_info


def test_a_round_does_not_hide_what_ends_a_thread() -> None:
    with pytest.raises(SystemExit):
        Rounds("packing").once(lambda: sys.exit(0))
