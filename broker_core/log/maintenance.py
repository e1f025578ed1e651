"""Removal from a log: retention, DeleteRecords, and compaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from broker_core.errors import (
    KafkaStorageError,
    OffsetOutOfRange,
)
from broker_core.log import checkpoints, producer_state
from broker_core.log.compaction import Compaction, CompactionResult, adopt, drop_result
from broker_core.log.reading import aborted_between
from broker_core.log.retention import count_deletable
from broker_core.log.segment import Segment
from broker_core.log.segmented_log import SegmentedLog
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)


class MaintainedLog(SegmentedLog):
    """A log with retention and compaction, which run beside appends and reads, one at a time."""

    # A compaction's old segments, and the one that takes their place, while that is not done.
    _replacing: tuple[list[Segment], Segment] | None = None

    @contextmanager
    def _maintenance_paused(self) -> Iterator[None]:
        """Have a compaction that is under way end early, and let none begin.

        It may take minutes; the event loop waits no longer than some records take.
        """
        with self._lock:
            self._pauses += 1
        try:
            with self._maintenance_lock:
                yield
        finally:
            with self._lock:
                self._pauses -= 1

    def end_maintenance(self) -> None:
        """Have a compaction that is under way end early: the log is about to be closed."""
        self._is_ending = True

    # --- deletion ---

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments beyond the limits of age and size; forget producers that have expired.

        Returns the number of deleted segments. Does nothing while a compaction is under way, which
        may take long: other logs have their turn. Raises KafkaStorageError.
        """
        if not self._maintenance_lock.acquire(blocking=False):
            return 0
        try:
            with self._lock:
                if self._failure is not None:
                    return 0
                self._finish_replacing()
                self._producers.expire(now_ms - self.config.producer_id_expiration_ms)
                count = count_deletable(
                    self._segments,
                    self.config,
                    now_ms=now_ms,
                    log_start_offset=self.log_start_offset,
                    high_watermark=self.high_watermark,
                )
                if count and count == len(self._segments):
                    self.roll()
                start = self._segments[count].base_offset
            return self._delete_oldest(count, start) if count else 0
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error}") from error
        finally:
            self._maintenance_lock.release()

    def _delete_oldest(self, count: int, start: int) -> int:
        """Delete files without the lock that appends need."""
        # Save the new start first: the log must never start again at records that are gone.
        self._save_offset(checkpoints.LOG_START_OFFSET, max(start, self.log_start_offset))
        with self._lock:
            self._begin_change()
            self.log_start_offset = max(start, self.log_start_offset)
            removed, self._segments = self._segments[:count], self._segments[count:]
            self._epochs.truncate_from_start(start)
            self._unsynced = [each for each in self._unsynced if each not in removed]
            for segment in removed:
                self._reader.forget(segment)
        try:
            for segment in removed:
                self.maintenance_steps += 1
                segment.remove()
                self._disk.remove(producer_state.snapshot_path(self.directory, segment.base_offset))
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
        logger.info("%s: %d old segments deleted, it begins at %d", self.name, count, start)
        return count

    def delete_records(self, before_offset: int) -> None:
        """Move the log's start to an offset, durably; -1 means the high watermark.

        The next `apply_retention` deletes the segments before it. Raises OffsetOutOfRange.
        """
        with self._lock:
            offset = self.high_watermark if before_offset == -1 else before_offset
            if not 0 <= offset <= self.high_watermark:
                raise OffsetOutOfRange(f"{self.name}: {offset} is not in 0..{self.high_watermark}")
            if offset > self.log_start_offset:
                self._save_offset(checkpoints.LOG_START_OFFSET, offset)
                self.log_start_offset = offset

    # --- compaction ---

    def compact(self, now_ms: int) -> CompactionResult | None:
        """Keep only the newest record of each key in closed segments; return None if none is due.

        Offsets never change and the active segment stays as it is. This reads and writes a large
        part of the log and may run in a thread of its own beside all other operations. Raises
        KafkaStorageError.
        """
        with self._maintenance_lock:
            try:
                return self._compact(now_ms)
            except OSError as error:
                problem = error.strerror if is_disk_full(error) else error
                raise KafkaStorageError(f"{self.directory}: {problem}") from error

    def _compact(self, now_ms: int) -> CompactionResult | None:
        with self._lock:
            if self._failure is not None or not self.config.compacts:
                return None
            self._finish_replacing()
            # Kafka closes the active segment only with the next append. In a quiet topic that may
            # never come, and erased records would stay in the file.
            if now_ms - self._active.created_ms > self.config.roll_ms:
                self.roll()
            # Records that are not durable or not committed can still be truncated, and undecided
            # transactions can still be aborted.
            bound = min(self.recovery_point, self.last_stable_offset)
            segments = [segment for segment in self._segments[:-1] if segment.next_offset <= bound]
        compaction = Compaction(
            self._disk,
            self.directory,
            self.config,
            self.log_start_offset,
            now_ms,
            is_stopped=self._next_step,
            aborted=aborted_between(self._segments, self.log_start_offset, bound),
        )
        return compaction.run(segments, self._replace_segments)

    def _next_step(self) -> bool:
        """Count a step of a compaction; return True if it has to end early."""
        self.maintenance_steps += 1
        return self._is_ending or self._pauses > 0

    def _replace_segments(self, old: list[Segment], new: Segment) -> bool:
        """Replace segments by their compacted one; return False if they have left the log."""
        with self._lock:
            # After a truncation, one of them can be the active segment.
            present = self._segments[:-1]
            if self._failure is not None or not all(each in present for each in old):
                return False
            try:
                self._begin_change()
                for segment in old:
                    self._reader.forget(segment)
                    segment.hold()
            except BaseException:
                with suppress(OSError):
                    drop_result(self._disk, self.directory, new)
                raise
            self._replacing = old, new
            self._finish_replacing()
            return True

    def _finish_replacing(self) -> None:
        """Put a compacted segment in the place of old ones; raises OSError.

        An error may have come in between: some old files are gone then, which readers still hold,
        and only the new segment has their records.
        """
        if self._replacing is None:
            return
        old, new = self._replacing
        # Else they were cut or deleted in the meantime, and the next start takes what is left.
        if all(each in self._segments for each in old):
            adopt(self._disk, self.directory, old, new)
            at = self._segments.index(old[0])
            self._segments = [*self._segments[:at], new, *self._segments[at + len(old) :]]
        self._replacing = None
