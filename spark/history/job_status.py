"""Tells the supervisor when the history cannot be written, and when it can again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from spark.history.thread_steps import ThreadSteps
from waylog.process.notify import notify
from waylog.process.storage_trouble import room_trouble

logger = logging.getLogger(__name__)

#: Free bytes below which the next batch, its checkpoint or its staged files may not fit.
ROOM_BYTES_MIN: Final = 1024 * 1024
_LOOK_S: Final = 2.0
#: Seconds that a stream has to run after a failure before it counts as well again.
_WELL_AFTER_S: Final = 15.0


class JobStatus:
    """Reports trouble with `STATUS=not ready: ...` of sd_notify(3), each change in one line.

    `folders` are those that the job writes to on this machine, `steps` those of its threads. When
    one of these hangs, `on_hang` is called once. Thread-safe.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        steps: ThreadSteps,
        on_hang: Callable[[], object],
        tell: Callable[[str], None] = notify,
    ) -> None:
        self._folders = folders
        self._steps = steps
        self._on_hang = on_hang
        self._hangs = False
        self._tell = tell
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._running_since: float | None = None
        self._told: str | None = None

    def failed(self, reason: str) -> None:
        """Note that the stream has ended with an error."""
        with self._lock:
            self._failure, self._running_since = reason, None
            self._report()

    def started(self) -> None:
        """Note that the stream has started."""
        with self._lock:
            self._running_since = time.monotonic()

    def committed(self) -> None:
        """Note that a batch has been written."""
        with self._lock:
            self._failure = None
            self._report()

    def watch(self, stopping: threading.Event) -> None:
        """Look at folders and steps until a stop: without new fixes nothing is written that may
        fail.
        """
        while not stopping.wait(_LOOK_S):
            with self._lock:
                since = self._running_since
                if since is not None and time.monotonic() - since > _WELL_AFTER_S:
                    self._failure = None
                self._report()
            if not self._hangs and self._steps.hangs():
                self._hangs = True
                self._on_hang()

    def _report(self) -> None:
        found = (room_trouble(each, ROOM_BYTES_MIN) for each in self._folders)
        reason = next(filter(None, found), None) or self._failure or self._steps.trouble()
        if (reason is None) == (self._told is None):
            return
        told, self._told = self._told, reason
        if reason is None:
            logger.warning("ready again; it was: %s", told)
            self._tell("STATUS=ready")
        else:
            logger.error("not ready: %s", reason)
            self._tell(f"STATUS=not ready: {reason}")
