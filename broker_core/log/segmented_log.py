"""A log as a list of segments: rolling, reading, and durability."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

from broker_core.environment import Disk, Environment, FileSlice
from broker_core.errors import (
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from broker_core.log import checkpoints, producer_state, recovery
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.checkpoints import CleanShutdown
from broker_core.log.config import LogConfig
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from broker_core.log.producer_state import ProducerState
from broker_core.log.reading import SegmentReader, SoundRead, aborted_between
from broker_core.log.segment import RELATIVE_OFFSET_MAX, Segment
from broker_core.log.steps import result_of
from broker_core.protocol.batch_builder import empty_batch
from broker_core.protocol.stored_batches import whole_batches

logger = logging.getLogger(__name__)


class SegmentedLog:
    """The segments and offsets of a log, with the locks that guard them.

    `MaintainedLog` adds retention and compaction, `Log` adds appends.
    """

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        environment: Environment,
        loaded: recovery.LoadedLog,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        # log_start_offset <= high_watermark <= log_end_offset; recovery_point <= log_end_offset
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.segments[-1].next_offset
        self.high_watermark = self.log_end_offset
        self.recovery_point = loaded.recovery_point  # everything before it is on disk
        # False if the owner moves it: after a flush, or when other replicas have the records too.
        self.high_watermark_follows_end = True
        #: Everything before it was durable once; see `Log.continue_behind_acknowledged`.
        self.acknowledged_end = loaded.acknowledged_end
        self.bytes_cut = loaded.bytes_cut  # by the recovery that opened this log
        #: Grows while a retention or compaction goes on; one during which it does not hangs.
        self.maintenance_steps = 0
        self._environment = environment
        self._segments = loaded.segments
        self._active = loaded.segments[-1]
        self._producers = loaded.producers
        self._epochs = loaded.epochs
        self._unsynced = loaded.unsynced or [self._active]
        self._directory_is_dirty = not loaded.is_clean
        self._epochs_are_dirty = False
        self._has_clean_mark = loaded.is_clean
        # Files at the end are lost: the stored recovery point is behind the end.
        self._recovery_point_is_ahead = loaded.acknowledged_end > self.log_end_offset
        self._failure: str | None = None
        self._lock = threading.RLock()  # guards the list of segments, the offsets, unsynced
        self._flush_lock = threading.Lock()  # one flush at a time; taken before _lock
        self._maintenance_lock = threading.Lock()  # one retention or compaction; taken first
        # Both end a running compaction early, so that nobody has to wait until it is done.
        self._is_ending = False
        self._pauses = 0
        self._reader = SegmentReader(lambda: {self._active, *self._unsynced})

    @property
    def _disk(self) -> Disk:
        return self._environment.disk

    @property
    def name(self) -> str:
        """Topic and partition in the form of Kafka's directory names."""
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, without indexes."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; the last is the active one."""
        return list(self._segments)

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent and transactional producers."""
        return self._producers

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epochs of the log's batches."""
        return self._epochs

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self.config = config

    def _begin_change(self) -> None:
        """Remove what the log's files say of its end, before the log is changed."""
        if self._has_clean_mark:
            try:
                CleanShutdown.remove(self._disk, self.directory)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
            self._has_clean_mark = False
        if self._recovery_point_is_ahead:
            # Else the next start would take what is appended now for checked and durable.
            self._save_offset(checkpoints.RECOVERY_POINT, self.recovery_point)
            self._recovery_point_is_ahead = False

    # --- segments ---

    def _roll_if_full(self, size: int, next_offset: int, now_ms: int) -> None:
        active, config = self._active, self.config
        if active.size == 0:
            if next_offset - active.base_offset > RELATIVE_OFFSET_MAX:
                raise RecordListTooLarge("the batches have too many offsets")
            return
        age_ms = now_ms - active.created_ms
        if (
            active.size + size > config.segment_bytes
            or (
                age_ms > config.roll_ms - config.segment_jitter_ms
                and age_ms > config.roll_ms - self._jitter_ms()
            )
            or next_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or active.indexes.offset_entries >= config.segment_index_bytes // INDEX_ENTRY_BYTES
        ):
            self.roll()

    def _jitter_ms(self) -> int:
        """Return by how much earlier the active segment ends, so that not all logs roll at once."""
        config = self.config
        # A restart must not change it.
        chance = zlib.crc32(f"{self.name} {self._active.base_offset}".encode())
        return chance % (min(config.segment_jitter_ms, config.roll_ms) + 1)

    def roll(self) -> None:
        """Close the active segment and begin a new one; do nothing if the active one is empty.

        Raises KafkaStorageError, and then the log is unchanged.
        """
        with self._lock:
            active = self._active
            if active.size == 0:
                return
            self._begin_change()
            segment = self._new_segment(self.log_end_offset)
            try:
                active.write_indexes()
                self._save_producers()
                # Last: if another step failed behind it, what is appended to the active segment
                # would lie behind the begin of an empty one, and the next start would cut it off.
                segment.begin()
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
            # The closed segment keeps its file open until it is flushed, so that flush can sync it.
            self._segments = [*self._segments, segment]
            self._active = segment
            self._unsynced.append(segment)
            self._directory_is_dirty = True

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(
            self._disk,
            self.directory,
            base_offset,
            size=0,
            next_offset=base_offset,
            created_ms=self._environment.clock.now_ms(),
            index_interval_bytes=self.config.index_interval_bytes,
        )

    def _save_producers(self) -> None:
        path = producer_state.snapshot_path(self.directory, self.log_end_offset)
        try:
            self._disk.write(path, (self._producers.to_bytes(),))
        except OSError:
            # What a full disk has taken of it would be found damaged by the next start.
            with suppress(OSError):
                self._disk.remove(path)
            raise

    # --- read ---

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_message: bool = True,
        up_to_offset: int | None = None,
    ) -> bytes:
        """Read whole batches of one segment, from the one that holds `offset` on.

        The first batch can begin before `offset`; the reader skips those records. Returns at most
        `max_bytes`, but with `min_one_message` at least one batch of any size, and only batches
        that end before `up_to_offset` (the high watermark); empty if there are none. Raises
        OffsetOutOfRange, KafkaStorageError, CorruptMessage.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise self._out_of_range(offset)
        if up_to_offset is not None and up_to_offset < end:
            end = up_to_offset
        if offset >= end:
            return b""
        try:
            return self._reader.read(self._segments, offset, max_bytes, end, min_one_message)
        except KafkaStorageError:
            if offset < self.log_start_offset:  # retention has deleted it in the meantime
                raise self._out_of_range(offset) from None
            raise

    def read_committed(
        self, offset: int, max_bytes: int, *, min_one_message: bool = True
    ) -> tuple[bytes, list[AbortedTransaction]]:
        """Read up to the last stable offset; also return the aborted transactions in that range.

        They are sorted by first offset; see `read`.
        """
        while True:
            segments = self._segments
            data = self.read(
                offset,
                max_bytes,
                min_one_message=min_one_message,
                up_to_offset=self.last_stable_offset,
            )
            _, end_offset = whole_batches(data)
            aborted = aborted_between(segments, offset, end_offset)
            # Compaction drops aborted records together with their index entries: the data and the
            # list must come from the same segments.
            if segments is self._segments:
                return data, aborted

    def read_sound(self, offset: int, max_bytes: int) -> SoundRead:
        """Read batches from an offset up to the log's end, check them, and pass over damage.

        Raises OffsetOutOfRange, KafkaStorageError.
        """
        end = self.log_end_offset
        if not self.log_start_offset <= offset <= end:
            raise self._out_of_range(offset)
        return self._reader.read_sound(self._segments, offset, max_bytes, end)

    def slice(
        self, offset: int, max_bytes: int, up_to_offset: int
    ) -> tuple[FileSlice, list[AbortedTransaction]] | None:
        """Return what `read_committed` would, with a file slice instead of the batches.

        Reads up to `up_to_offset`. None if the slice is not worth it, or if `read` has to raise the
        error. Raises KafkaStorageError, CorruptMessage.
        """
        while True:
            segments = self._segments
            end = min(up_to_offset, self.log_end_offset)
            if not self.log_start_offset <= offset < end:
                return None
            sliced = self._reader.slice(segments, offset, max_bytes, end)
            if sliced is None:
                return None
            data, end_offset = sliced
            aborted = aborted_between(segments, offset, end_offset)
            if segments is self._segments:
                return data, aborted

    def read_gap(self, offset: int, up_to_offset: int) -> bytes:
        """Return an empty batch over the offsets from here to the log's end if no record has them.

        The newest records are lost (`Log.continue_behind_acknowledged`): readers would wait for
        them for ever, and followers never be in sync. b"" if there are records. Raises
        KafkaStorageError, CorruptMessage.
        """
        segments = self._segments
        end = min(self._reader.gap_at(segments, offset), up_to_offset, offset + RELATIVE_OFFSET_MAX)
        if end <= offset or segments is not self._segments:
            return b""
        return empty_batch(offset, end)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"{self.name}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
        )

    @property
    def has_closed_segments_to_flush(self) -> bool:
        """True if a whole closed segment is not durable yet: recovery would have to read it."""
        return len(self._unsynced) > 1

    @property
    def last_stable_offset(self) -> int:
        """All transactions that begin before it are decided; at most the high watermark."""
        with self._lock:
            unstable = self._producers.first_unstable_offset(self.high_watermark)
            if unstable is None or unstable >= self.high_watermark:
                return self.high_watermark
            return max(unstable, self.log_start_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record at `timestamp_ms` or later.

        Searches up to the high watermark. Raises KafkaStorageError.
        """
        return result_of(self.look_for_timestamp(timestamp_ms))

    def look_for_timestamp(self, timestamp_ms: int) -> Generator[int, None, tuple[int, int] | None]:
        """Do what `offset_for_timestamp` does, but yield after each batch that was opened in vain.

        There may be any number of them; what is yielded is the size of the batch in bytes.
        """
        return self._reader.first_at_timestamp(
            self._segments, timestamp_ms, self.log_start_offset, self.high_watermark
        )

    def max_timestamp(self) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record with the newest timestamp; None if empty.

        Also None if `delete_records` deleted that record but its segment still exists.
        """
        return result_of(self.look_for_max_timestamp())

    def look_for_max_timestamp(self) -> Generator[int, None, tuple[int, int] | None]:
        """Do what `max_timestamp` does, see `look_for_timestamp`."""
        segments = [segment for segment in self._segments if segment.size]
        if not segments or self.log_start_offset == self.log_end_offset:
            return None
        newest = max(segment.max_timestamp for segment in segments)
        return (yield from self.look_for_timestamp(newest))

    # --- durability ---

    def flush(self) -> int:
        """Make all appended batches durable; return the offset up to which the log is durable.

        Safe beside appends, rolls, retention and reads of other threads. Raises KafkaStorageError;
        the log then refuses appends, since the kernel may have dropped what it failed to write.
        """
        with self._flush_lock:
            with self._lock:
                if self._failure is not None:
                    raise KafkaStorageError(self._failure)
                target = self.log_end_offset
                if target <= self.recovery_point and not self._directory_is_dirty:
                    return self.recovery_point
                segments = self._unsynced[:]
                # The handles keep the files open, whatever happens to the segments meanwhile.
                handles = [segment.handle() for segment in segments]
                closed = [segment for segment in segments if segment is not self._active]
                directory_is_dirty, self._directory_is_dirty = self._directory_is_dirty, False
                epochs_are_dirty, self._epochs_are_dirty = self._epochs_are_dirty, False
            try:
                for handle in handles:
                    handle.file.fdatasync()
                for segment in closed:
                    with suppress(FileNotFoundError):  # retention has deleted it in the meantime
                        segment.indexes.sync()
                if epochs_are_dirty:
                    self._epochs.save()
                if directory_is_dirty:
                    self._disk.fsync_directory(self.directory)
            except OSError as error:
                self._failure = f"{self.directory}: cannot be synced: {error.strerror}"
                logger.critical("%s; the log takes no more appends", self._failure)
                raise KafkaStorageError(self._failure) from error
            return self._flushed(target, closed)

    def _flushed(self, target: int, closed: list[Segment]) -> int:
        with self._lock:
            self.recovery_point = max(self.recovery_point, target)
            for segment in closed:
                if segment in self._unsynced:
                    self._unsynced.remove(segment)
                    self._reader.use(segment)
            recovery_point = self.recovery_point
        if closed:
            # Saved only with closed segments: with an older one the next start only reads more.
            self._save_offset(checkpoints.RECOVERY_POINT, recovery_point)
        return recovery_point

    def park(self) -> None:
        """Close the active segment's file if everything in it is durable."""
        with self._lock:
            if self.recovery_point >= self.log_end_offset:
                self._active.park()

    def _save_offset(self, name: str, offset: int) -> None:
        try:
            checkpoints.save_offset(self._disk, self.directory, name, offset)
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
