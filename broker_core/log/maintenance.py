"""What goes out of a log again: old segments, deleted records, records that newer ones replace."""

from __future__ import annotations

import logging

from broker_core.errors import (
    KafkaStorageError,
    OffsetOutOfRange,
)
from broker_core.log import checkpoints, producer_state
from broker_core.log.compaction import Compaction, CompactionResult, adopt
from broker_core.log.reading import aborted_between
from broker_core.log.retention import count_deletable
from broker_core.log.segment import Segment
from broker_core.log.segmented_log import SegmentedLog

logger = logging.getLogger(__name__)


class MaintainedLog(SegmentedLog):
    """Retention and compaction beside appends and reads, one of them at a time."""

    # --- deletion ---

    def apply_retention(self, now_ms: int) -> int:
        """Delete segments that are too old or too much; forget silent producers.

        Returns how many segments went. Raises KafkaStorageError.
        """
        with self._maintenance_lock:
            with self._lock:
                if self._failure is not None:
                    return 0
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

    def _delete_oldest(self, count: int, start: int) -> int:
        """Appends wait for none of the work on files here."""
        # The start first: it must never come back to records that are gone.
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
                segment.remove()
                self._disk.remove(producer_state.snapshot_path(self.directory, segment.base_offset))
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
        logger.info("%s: %d old segments deleted, it begins at %d", self.name, count, start)
        return count

    def delete_records(self, before_offset: int) -> None:
        """Let the log begin at an offset, durably; -1 means the high watermark.

        Whole segments go with the next `apply_retention`. Raises OffsetOutOfRange.
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
        """Keep only the newest record of each key in closed segments, where that is due.

        Offsets never change, the active segment is left alone. Safe beside everything else, in a
        thread of its own: it reads and writes a good part of the log. None where nothing was due.
        Raises KafkaStorageError.
        """
        with self._maintenance_lock:
            with self._lock:
                if self._failure is not None or not self.config.compacts:
                    return None
                # Kafka closes it with the next append, which a quiet topic may wait for for ever:
                # what was erased would stay in the file as long.
                if now_ms - self._active.created_ms > self.config.roll_ms:
                    self.roll()
                # What is not durable or not committed can still be cut off, what is not decided
                # can still be aborted.
                bound = min(self.recovery_point, self.last_stable_offset)
                segments = [
                    segment for segment in self._segments[:-1] if segment.next_offset <= bound
                ]
            compaction = Compaction(
                self._disk,
                self.directory,
                self.config,
                self.log_start_offset,
                now_ms,
                is_stopped=lambda: self._is_ending,
                aborted=aborted_between(self._segments, self.log_start_offset, bound),
            )
            try:
                return compaction.run(segments, self._replace_segments)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error}") from error

    def _replace_segments(self, old: list[Segment], new: Segment) -> bool:
        """Put a compacted segment in the place of those it was made of; False if they are gone."""
        with self._lock:
            # The active segment can be one of them after a truncation.
            present = self._segments[:-1]
            if self._failure is not None or not all(each in present for each in old):
                return False
            self._begin_change()
            for segment in old:
                self._reader.forget(segment)
                segment.hold()
            adopt(self._disk, self.directory, old, new)
            at = self._segments.index(old[0])
            self._segments = [*self._segments[:at], new, *self._segments[at + len(old) :]]
            return True
