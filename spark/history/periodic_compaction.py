"""Periodic compaction of a history that is being written, in a process beside the job.

A separate process returns its memory to the system, and the job keeps writing in the meantime.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Final

from waylog.history.history_reader import HistoryReader, HistoryUnreadable
from waylog.process.threads import Rounds

logger = logging.getLogger(__name__)

#: Seconds until the first compaction, so that short-lived jobs compact too.
_FIRST_S: Final = 600.0

# Number of files from which a day that is not over is compacted as well.
_FILES_MAX: Final = 10_000

_NICENESS: Final = 10
_LOOK_S: Final = 0.5
_END_S: Final = 10.0


class PeriodicCompaction:
    """A task that compacts finished days and months every `interval_s` seconds, until `stopping`.

    Days that still get fixes, for example old days of an import, wait until they have got none for
    `settled_h` hours.
    """

    def __init__(
        self, out: str, interval_s: float, settled_h: float, stopping: threading.Event
    ) -> None:
        self._out = out
        self._interval_s = interval_s
        self._stopping = stopping
        self._words = [
            *(sys.executable, "-m", "waylog.cli", "history", "compact", "--out", out),
            *("--files-max", str(_FILES_MAX), "--settled", str(settled_h)),
        ]

    def run(self) -> None:
        """Compact periodically; runs in a thread."""
        wait_s = min(self._interval_s, _FIRST_S)
        rounds = Rounds("packing the history", expected=(OSError, HistoryUnreadable))
        while not self._stopping.wait(wait_s):
            rounds.once(self._compact_if_any)
            wait_s = self._interval_s

    def _compact_if_any(self) -> None:
        if HistoryReader(self._out).files():
            self._compact()

    def _compact(self) -> None:
        process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL)
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
            while process.poll() is None and not self._stopping.wait(_LOOK_S):
                pass
        finally:
            if process.poll() is None:
                # Unfinished files are not current, and the next compaction removes them.
                process.terminate()
                try:
                    process.wait(_END_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if process.returncode and not self._stopping.is_set():
            logger.error("the history is not packed: status %d", process.returncode)
