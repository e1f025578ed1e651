"""Threads of a process: none ends unseen.

Python prints the traceback of a thread that an exception has ended, of SystemExit not even that,
and the process goes on without it: ready, but only in part. `start_thread` ends the process
instead, so that a supervisor restarts it. `Rounds` is for work of a thread that may fail and is
tried again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)


def end_process() -> None:
    """End this process at once with status 1.

    It is as if the process had been killed, which loses nothing that was acknowledged. Only the
    main thread could end it in order, and it may wait for the very thread that has failed.
    """
    try:
        for handler in logging.getLogger().handlers:
            with contextlib.suppress(Exception):
                handler.flush()
    finally:
        os._exit(1)


def start_thread(
    work: Callable[[], object],
    name: str,
    *,
    may_end: Callable[[], bool] = lambda: False,
    on_failure: Callable[[], object] = end_process,
    daemon: bool = True,
) -> threading.Thread:
    """Start a thread whose unexpected end is logged and ends the process.

    Any exception is unexpected, SystemExit and KeyboardInterrupt too; so is a return for which
    `may_end` is false, for example before a stop was requested. `on_failure` is called in the
    thread, after the log line.
    """

    def run() -> None:
        try:
            work()
            if may_end():
                return
            error = None
        except BaseException as raised:
            error = raised
        # At the end of a process its status stands, and the interpreter takes away what daemon
        # threads need.
        if daemon and not threading.main_thread().is_alive():
            return
        try:
            if error is None:
                logger.critical("thread %s has ended too early; this process ends", name)
            else:
                logger.critical("thread %s failed; this process ends", name, exc_info=error)
        finally:
            on_failure()

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread


def watch_thread_of(
    start: Callable[[], object], prefix: str, *, may_end: Callable[[], bool]
) -> threading.Thread:
    """Call `start`, and end the process when the thread that it starts ends.

    For libraries that start a thread of their own, whose name begins with `prefix`: an exception in
    a callback ends such a thread, and the library goes on without it. Raises RuntimeError if
    `start` starts none.
    """
    started = thread_of(start, prefix)
    return start_thread(started.join, f"watch of {started.name}", may_end=may_end)


def thread_of(start: Callable[[], object], prefix: str) -> threading.Thread:
    """Call `start`, and return the thread that it starts, whose name begins with `prefix`.

    For a caller that asks itself whether the thread is alive. Raises RuntimeError if there is none.
    """
    former = set(threading.enumerate())
    start()
    # Other threads may begin meanwhile.
    started = [
        each
        for each in threading.enumerate()
        if each not in former and each.name.startswith(prefix)
    ]
    if not started:
        raise RuntimeError(f"no thread {prefix}... has been started, or it has ended at once")
    return started[0]


class Rounds:
    """Rounds of a thread's work; one that fails is logged, and the next one comes.

    Its sister for an event loop is waylog.process.background.PeriodicTask.
    """

    def __init__(self, name: str, expected: tuple[type[Exception], ...] = ()) -> None:
        """Failures that are `expected` are logged as a warning, without a traceback."""
        self._name = name
        self._expected = expected
        self._failure = RepeatedFailure()

    def once(self, work: Callable[[], object]) -> bool:
        """Run one round, and return whether it succeeded.

        Logs a failure if it differs from that of the round before.
        """
        try:
            work()
        except Exception as error:
            if self._failure.is_new(error):
                if isinstance(error, self._expected):
                    logger.warning("%s failed; it is tried again: %s", self._name, error)
                else:
                    logger.exception("%s failed; it is tried again", self._name)
            return False
        self._failure.succeeded()
        return True
