"""Periodic compaction of a history that is being written, in a process beside the job.

A separate process returns its memory to the system, and the job keeps writing in the meantime.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from spark.history.health.thread_steps import ThreadSteps
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
#: Seconds without any CPU time after which a process that packs counts as one that hangs.
_IDLE_MAX_S: Final = 600.0
_WORK: Final = "packing the history"


class PeriodicCompaction:
    """A task that compacts finished days and months every `interval_s` seconds, until `stopping`.

    Days that still get fixes, for example old days of an import, wait until they have got none for
    `settled_h` hours.
    """

    def __init__(
        self,
        out: str,
        interval_s: float,
        settled_h: float,
        stopping: threading.Event,
        steps: ThreadSteps,
    ) -> None:
        self._out = out
        self._interval_s = interval_s
        self._stopping = stopping
        self._steps = steps
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
        with self._steps.doing(_WORK):
            if HistoryReader(self._out).files():
                self._compact()

    def _compact(self) -> None:
        process = subprocess.Popen(self._words, stdin=subprocess.DEVNULL)
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
            self._await(process)
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

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its end or a stop, or until it hangs: packing takes hours, but not idly."""
        used, used_at = _cpu_ticks(process.pid), time.monotonic()
        while process.poll() is None and not self._stopping.wait(_LOOK_S):
            ticks = _cpu_ticks(process.pid)
            if ticks != used:
                used, used_at = ticks, time.monotonic()
                self._steps.advanced(_WORK)
            elif time.monotonic() - used_at > _IDLE_MAX_S:
                logger.error("packing has done nothing for %.0f s: it is ended", _IDLE_MAX_S)
                return


def _cpu_ticks(process: int) -> int:
    """Return the CPU time that a process has used, in ticks of the clock; see proc(5)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2]
    except OSError:
        return -1  # it has ended, or there is no /proc
    user, system = fields.split()[11:13]
    return int(user) + int(system)
