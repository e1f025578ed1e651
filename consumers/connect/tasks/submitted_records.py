"""Records of a source task on their way to the log, and which offsets may be stored.

An offset may be stored when all records of its source partition up to it are acknowledged. Nothing
here waits or writes. `submit` is called in the task's thread, `acknowledge` and `committable` in
any.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from consumers.connect.data.records import SourceRecord
from consumers.connect.storage.offsets import partition_key

Place = Mapping[str, Any]


class SubmittedRecord:
    """A record on its way."""

    __slots__ = ("is_acknowledged", "offset")

    def __init__(self, offset: Place | None) -> None:
        self.offset: Final = offset
        self.is_acknowledged = False


class SubmittedRecords:
    """The records of one task that are on their way, in their order."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._queues: Final[dict[bytes, deque[SubmittedRecord]]] = {}
        self._partitions: Final[dict[bytes, Place]] = {}
        self._last: Place | None = None
        self._last_queue: deque[SubmittedRecord] | None = None
        self._unacknowledged = 0

    @property
    def unacknowledged(self) -> int:
        """The number of records that are not acknowledged yet."""
        return self._unacknowledged

    def submit(self, record: SourceRecord) -> SubmittedRecord:
        """Take note of a record before it is sent."""
        submitted = SubmittedRecord(record.source_offset)
        partition = record.source_partition
        with self._lock:
            # Most connectors make many records of one partition, with the same object.
            queue = self._last_queue
            if queue is None or partition is not self._last:
                key = partition_key(partition or {})
                queue = self._queues.setdefault(key, deque())
                self._partitions[key] = partition or {}
                self._last, self._last_queue = partition, queue
            queue.append(submitted)
            self._unacknowledged += 1
        return submitted

    def withdraw(self, submitted: SubmittedRecord) -> None:
        """Forget the record that was submitted last: it has not been sent."""
        with self._lock:
            if self._last_queue and self._last_queue[-1] is submitted:
                self._last_queue.pop()
                self._unacknowledged -= 1

    def acknowledge(self, submitted: SubmittedRecord) -> None:
        """Take note that a record is in the log, or was left out for good."""
        with self._lock:
            if not submitted.is_acknowledged:
                submitted.is_acknowledged = True
                self._unacknowledged -= 1

    def committable(self) -> list[tuple[Place, Place | None]]:
        """Return source partitions with the offset that may be stored, each of them once."""
        found: list[tuple[Place, Place | None]] = []
        with self._lock:
            for key, queue in list(self._queues.items()):
                offset: Place | None = None
                has_offset = False
                while queue and queue[0].is_acknowledged:
                    offset, has_offset = queue.popleft().offset, True
                if has_offset:
                    found.append((self._partitions[key], offset))
                if not queue and queue is not self._last_queue:
                    del self._queues[key], self._partitions[key]
        return found
