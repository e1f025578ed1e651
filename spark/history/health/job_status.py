"""Looks at what a history job needs, and says when it cannot write and when it can again."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from spark.fixes.log_source import open_log
from spark.history.health.stall import Stall
from spark.history.health.thread_steps import ThreadSteps
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.reach import silence_reason
from waylog.kafka.topics import LOCATION
from waylog.process.broker_liveness import BrokerLiveness
from waylog.process.process_status import ProcessStatus
from waylog.process.storage_trouble import room_trouble

#: Free bytes below which the next batch, its checkpoint or its staged files may not fit.
ROOM_BYTES_MIN: Final = 1024 * 1024
_LOOK_S: Final = 2.0
_ASK_S: Final = 2.0
#: Seconds that a stream has to run after a failure before it counts as well again.
_WELL_AFTER_S: Final = 15.0
_START: Final = "start"
_ROOM: Final = "room"
_STREAM: Final = "stream"
_STEPS: Final = "steps"
_STALL: Final = "stall"


class JobStatus:
    """Knows whether a history job is well. Thread-safe.

    `folders` are those that the job writes to on this machine, `steps` those of its threads. When
    one of these hangs, `on_hang` is called once. Records that wait for `patience_s` are a trouble.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        folders: Sequence[Path],
        steps: ThreadSteps,
        on_hang: Callable[[], object],
        patience_s: float = math.inf,
        on_look: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_look` is called after each look."""
        self._bootstrap_servers = bootstrap_servers
        self._folders = folders
        self._steps = steps
        self._on_hang = on_hang
        self._on_look = on_look
        self._hangs = False
        self._status = ProcessStatus()
        self._lock = threading.Lock()
        self._stall = Stall(patience_s)
        self._running_since = 0.0

    def waits(self, reason: str) -> None:
        """Note that the job cannot start yet."""
        self._status.trouble(_START, reason)

    def starts(self) -> None:
        """Note that the start goes on."""
        self._status.over(_START)

    def failed(self, reason: str) -> None:
        """Note that the stream has ended with an error."""
        self._running_since = 0.0
        with self._lock:
            self._stall.failed(reason)
        self._status.trouble(_STREAM, reason)

    def started(self) -> None:
        """Note that the stream has started."""
        self._running_since = time.monotonic()

    def committed(self) -> None:
        """Note that a batch has been written."""
        with self._lock:
            self._stall.committed()
        self._status.over(_STREAM)
        self._status.over(_STALL)

    def begins(self, written: Mapping[int, int] | None) -> None:
        """Note up to where the history was written before; None if that is not known."""
        with self._lock:
            self._stall.begins(written)

    def in_phase(self, phase: str) -> None:
        """Note what the stream says that it does."""
        with self._lock:
            self._stall.in_phase(phase)

    def stalled(self) -> str | None:
        """Return that records wait for too long, and why; None if they do not."""
        with self._lock:
            return self._stall.trouble(time.monotonic())

    def waiting_s(self) -> float:
        """Return for how many seconds records have waited without a batch being written."""
        with self._lock:
            return self._stall.waiting_s(time.monotonic())

    @property
    def troubles(self) -> str | None:
        """What keeps the job from writing; None if nothing does."""
        return self._status.told

    def watch(self, stopping: threading.Event) -> None:
        """Look at the log, folders and steps until a stop: without new fixes nothing is written
        that may fail, and a log that does not answer fails no batch.
        """
        offsets = open_log(self._bootstrap_servers)
        liveness = BrokerLiveness(self._status, partial(silence_reason, self._bootstrap_servers))
        try:
            while not stopping.wait(_LOOK_S):
                self._look()
                try:
                    watermarks = offsets.watermarks(LOCATION, _ASK_S, stopping)
                except LogUnreachable:
                    liveness.silent()
                else:
                    liveness.heard()
                    ends = {partition: marks.high for partition, marks in watermarks.items()}
                    with self._lock:
                        self._stall.log_ends(ends, time.monotonic())
                self._on_look()
        finally:
            offsets.close()

    def _look(self) -> None:
        found = (room_trouble(each, ROOM_BYTES_MIN) for each in self._folders)
        self._note(_ROOM, next(filter(None, found), None))
        self._note(_STEPS, self._steps.trouble())
        self._note(_STALL, self.stalled())
        since = self._running_since
        if since and time.monotonic() - since > _WELL_AFTER_S:
            self._status.over(_STREAM)
        if not self._hangs and self._steps.hangs():
            self._hangs = True
            self._on_hang()

    def _note(self, kind: str, reason: str | None) -> None:
        # A trouble is told as it began: free bytes and seconds would change its words all the time.
        if reason is None:
            self._status.over(kind)
        elif kind not in self._status:
            self._status.trouble(kind, reason)
