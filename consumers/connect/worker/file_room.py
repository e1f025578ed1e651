"""Decides whether a worker may open the files of one more task.

The clients of a task have connections to brokers, and pipes that wake their threads. A worker that
had no file left could not even answer on its REST interface: it keeps some for itself, and refuses
tasks instead.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from consumers.connect.data.exceptions import ConnectException
from waylog.process.file_limit import files_left, part_of_files

#: What the clients of a task open as a rule.
TASK_FILES: Final = 12
#: Seconds after which a task has opened them.
_OPENED_S: Final = 10.0
#: For the REST interface, the worker's own topics and group, and what tasks open later.
_OWN_FILES: Final = 256
_OWN_PART: Final = 1 / 4


class FileRoom:
    """Counts files that are open, and those that tasks are about to open."""

    def __init__(
        self,
        left: Callable[[], int] = files_left,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`left` returns how many files the process may still open."""
        self._left: Final = left
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._begun: Final[deque[float]] = deque()

    def take(self) -> None:
        """Take note of a task that begins; raises ConnectException if there is no room for it."""
        now = self._clock()
        with self._lock:
            while self._begun and now - self._begun[0] > _OPENED_S:
                self._begun.popleft()
            left = self._left() - len(self._begun) * TASK_FILES
            if left < part_of_files(_OWN_PART, _OWN_FILES) + TASK_FILES:
                raise ConnectException(
                    "this worker has too few files left for another task: raise the limit of open "
                    "files (`ulimit -Hn`, LimitNOFILE= in a systemd unit) or start another worker, "
                    "then restart the task"
                )
            self._begun.append(now)
