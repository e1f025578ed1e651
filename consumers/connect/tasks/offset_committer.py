"""Stores the offsets of all source tasks of a worker from time to time, in a thread of its own.

A task that waits in its `poll` neither takes acknowledgements nor stores offsets.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from consumers.connect.tasks.source_task_thread import SourceTaskThread
from waylog.process.threads import Rounds, start_thread

logger = logging.getLogger(__name__)

_ROUND_S: Final = 0.1


class OffsetCommitter:
    """The thread; `add` and `close` may be called in any."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._tasks: Final[dict[SourceTaskThread, float]] = {}
        self._rounds: Final[dict[SourceTaskThread, Rounds]] = {}
        self._closed: Final = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        start_thread(self._run, "source-task-offset-committer", may_end=self._closed.is_set)

    def add(self, task: SourceTaskThread) -> None:
        """Store the offsets of a task from now on, until it has ended."""
        with self._lock:
            self._tasks[task] = time.monotonic() + task.timing.flush_interval_s
            self._rounds[task] = Rounds(f"storing offsets of task {task.task_id}")

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_ROUND_S):
            with self._lock:
                tasks = list(self._tasks.items())
            for task, due in tasks:
                self._look_after(task, due)

    def _look_after(self, task: SourceTaskThread, due: float) -> None:
        if task.has_ended or task.is_cancelled:
            with self._lock:
                del self._tasks[task], self._rounds[task]
            return
        if not task.may_commit:
            return
        task.serve()
        now = time.monotonic()
        if now >= due:
            self._rounds[task].once(task.commit_offsets)
            with self._lock:
                self._tasks[task] = now + task.timing.flush_interval_s
