"""Reports that a process makes progress, with the protocol of sd_watchdog_enabled(3).

A supervisor that watches puts a time into WATCHDOG_USEC. A process that has become ready sends
WATCHDOG=1 at least that often. One that stops doing so hangs: the supervisor aborts it (SIGABRT),
which prints where each thread is, and starts it again. systemd does the same (`WatchdogSec=`).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import threading
import time
from functools import partial
from typing import Final

from waylog.process.notify import notify
from waylog.process.threads import start_thread

logger = logging.getLogger(__name__)

ALIVE: Final = "WATCHDOG=1"


def interval_s() -> float | None:
    """Return the seconds between two reports, a third of what is allowed; None: nobody watches."""
    allowed, own = os.environ.get("WATCHDOG_USEC", ""), str(os.getpid())
    if not allowed.isdigit() or os.environ.get("WATCHDOG_PID", own) != own:
        return None
    return int(allowed) / 3e6 or None


class Watchdog:
    """For a loop that calls `alive` in each of its rounds."""

    def __init__(self) -> None:
        self._interval_s = interval_s()
        self._reported = -float("inf")
        if self._interval_s is not None:
            _print_threads_when_aborted()

    def alive(self) -> None:
        """Report progress, unless that was done a moment ago."""
        if self._interval_s is None:
            return
        now = time.monotonic()
        if now - self._reported >= self._interval_s:
            self._reported = now
            notify(ALIVE, 0)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait like `event.wait`, and report progress meanwhile."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            self.alive()
            if event.wait(min(left_s, self._interval_s or left_s)):
                break
        return event.is_set()


class ProgressWatchdog:
    """For work whose steps may take longer than a supervisor waits for a report.

    The work calls `advanced` after each step. A thread reports progress as long as the last step is
    not older than `patience_s`.
    """

    def __init__(self, patience_s: float) -> None:
        self._interval_s = interval_s()
        self._patience_s = patience_s
        self._advanced_at = time.monotonic()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to report; has no effect where nobody watches, or if it was called before."""
        self.advanced()
        if self._interval_s is not None and self._thread is None:
            _print_threads_when_aborted()
            self._thread = start_thread(
                partial(self._report, self._interval_s), "watchdog", may_end=self._closed.is_set
            )

    def advanced(self) -> None:
        """Note that the work has made progress."""
        self._advanced_at = time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait like `event.wait`; a wait is progress, however long it is."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            self.advanced()
            if event.wait(min(left_s, self._patience_s / 2)):
                break
        self.advanced()
        return event.is_set()

    def close(self) -> None:
        """Report no more."""
        self._closed.set()

    def _report(self, interval_s: float) -> None:
        hangs = False
        while not self._closed.is_set():
            silent_s = time.monotonic() - self._advanced_at
            if silent_s <= self._patience_s:
                notify(ALIVE, 0)
            elif not hangs:
                logger.error("there has been no progress for %.0f s", silent_s)
            hangs = silent_s > self._patience_s
            self._closed.wait(interval_s)


class EventLoopWatchdog:
    """Reports progress as long as an event loop runs its timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._interval_s = interval_s()
        self._timer: asyncio.TimerHandle | None = None
        if self._interval_s is not None:
            _print_threads_when_aborted()
            self._alive()

    def close(self) -> None:
        """Report no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _alive(self) -> None:
        assert self._interval_s is not None
        notify(ALIVE, 0)
        self._timer = self._loop.call_later(self._interval_s, self._alive)


def _print_threads_when_aborted() -> None:
    # Standard error may be closed, or no file.
    with contextlib.suppress(RuntimeError, ValueError, OSError):
        faulthandler.enable()
