"""A partition's log: append, read, look up by time, flush, retain."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from broker_core.environment import Buffer, Disk, Environment, FileSlice
from broker_core.errors import (
    CorruptMessage,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from broker_core.log import checkpoints, producer_state, recovery
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.checkpoints import CleanShutdown
from broker_core.log.compaction import Compaction, CompactionResult, adopt
from broker_core.log.config import LogConfig
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from broker_core.log.producer_state import ProducerState
from broker_core.log.reading import SegmentReader, aborted_between
from broker_core.log.recovery import remember_producer
from broker_core.log.retention import count_deletable
from broker_core.log.segment import RELATIVE_OFFSET_MAX, Segment
from broker_core.log.truncation import cut_segments, reload_producers
from broker_core.log.validation import prepare
from broker_core.protocol.control_records import EndMarker
from broker_core.protocol.records import (
    BatchHeader,
    assign_offsets,
    scan_batches,
    validate_batches,
    whole_batches,
)

logger = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """Where batches stand in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 where the producer's timestamps are kept
    log_start_offset: int
    duplicate: bool  # they were there already; nothing was written


class Log:
    """The batches of one partition in segments, see the package.

    Appends come from one thread; everything else may run beside them in other threads. After a
    failed fdatasync nothing that was written since can be trusted, and a second attempt would lie
    (the kernel forgets the pages): the log then refuses all appends.
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
        self.recovery_point = loaded.recovery_point  # everything before it is on the medium
        # False where somebody else moves it: after a flush, or when other replicas have it too.
        self.high_watermark_follows_end = True
        self.bytes_cut = loaded.bytes_cut  # by the recovery that opened this log
        self._environment = environment
        self._segments = loaded.segments
        self._active = loaded.segments[-1]
        self._producers = loaded.producers
        self._epochs = loaded.epochs
        self._unsynced = loaded.unsynced or [self._active]
        self._directory_is_dirty = not loaded.is_clean
        self._epochs_are_dirty = False
        self._has_clean_mark = loaded.is_clean
        self._failure: str | None = None
        self._lock = threading.RLock()  # the list of segments, offsets, unsynced
        self._flush_lock = threading.Lock()  # one flush at a time; taken before _lock
        self._maintenance_lock = threading.Lock()  # one retention or compaction; taken first
        self._is_ending = False  # stops a compaction, for which nobody wants to wait
        self._reader = SegmentReader(lambda: {self._active, *self._unsynced})

    @classmethod
    def open(
        cls,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        environment: Environment,
    ) -> Log:
        """Open or create the log in a directory of its own, recovering it where it must be.

        What is kept after a crash is made durable first. Raises KafkaStorageError.
        """
        loaded = recovery.load(directory, f"{topic}-{partition}", config, environment)
        log = cls(directory, topic, partition, config, environment, loaded)
        if log.recovery_point < log.log_end_offset:
            log.flush()
        # Of thousands of logs few are written: each opens its file when it is used.
        log.park()
        return log

    @property
    def _disk(self) -> Disk:
        return self._environment.disk

    @property
    def name(self) -> str:
        """Topic and partition, as Kafka names the directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        """Bytes of batches, without indexes."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; the last is written."""
        return list(self._segments)

    @property
    def producers(self) -> ProducerState:
        """What is known of idempotent producers."""
        return self._producers

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """The leader epochs of the log's batches."""
        return self._epochs

    def update_config(self, config: LogConfig) -> None:
        """Use other settings from now on."""
        self.config = config

    # --- append ---

    def append(
        self,
        batches: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        verified: bool = True,
    ) -> AppendResult:
        """Check batches as a producer sent them, number them in place, write them at once.

        A batch that its idempotent producer sent before is answered with its offsets. A
        transaction that begins here must be `verified` with its coordinator. Nothing is durable
        before `flush`. Raises BrokerError subclasses: CorruptMessage, InvalidRecord,
        InvalidTimestamp, MessageTooLarge, UnsupportedCompressionType, OutOfOrderSequenceNumber,
        InvalidProducerEpoch, DuplicateSequenceNumber, InvalidTxnState, RecordListTooLarge,
        KafkaStorageError; the log is unchanged then.
        """
        config = self.config
        batches, headers = prepare(batches, config, now_ms, self.name)
        append_time = now_ms if config.uses_log_append_time else -1
        with self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            duplicate = self._producers.check(headers, verified=verified)
            if duplicate is not None:
                return AppendResult(
                    duplicate.base_offset,
                    duplicate.last_offset,
                    append_time,
                    self.log_start_offset,
                    duplicate=True,
                )
            return self._append(batches, headers, leader_epoch, now_ms, append_time)

    def append_from_coordinator(
        self,
        batches: bytearray,
        *,
        leader_epoch: int,
        now_ms: int,
        marker: EndMarker | None = None,
    ) -> AppendResult:
        """Append what the broker itself writes: transactional offsets, and transaction markers.

        `marker` is what a control batch says. Raises InvalidProducerEpoch,
        TransactionCoordinatorFenced, KafkaStorageError; the log is unchanged then.
        """
        headers = validate_batches(batches, from_client=False)
        with self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            self._producers.check_epoch(headers, marker)
            return self._append(batches, headers, leader_epoch, now_ms, -1)

    def _append(
        self,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        leader_epoch: int,
        now_ms: int,
        append_time: int,
    ) -> AppendResult:
        self._begin_change()
        base_offset = self.log_end_offset
        next_offset = assign_offsets(batches, headers, base_offset, leader_epoch, append_time)
        self._roll_if_full(len(batches), next_offset, now_ms)
        self._active.append(batches, headers, now_ms)
        if leader_epoch > self._epochs.latest:
            self._assign_epoch(leader_epoch, base_offset)
        self._written(batches, headers, next_offset, now_ms)
        return AppendResult(
            base_offset, next_offset - 1, append_time, self.log_start_offset, duplicate=False
        )

    def _written(
        self,
        batches: bytearray | memoryview,
        headers: list[BatchHeader],
        next_offset: int,
        now_ms: int,
    ) -> None:
        for header in headers:
            if header.producer_id >= 0:
                remember_producer(self._producers, self._active, header, batches, now_ms)
                if header.is_control:
                    # Nobody may ever ask for the last stable offset, which would do it too.
                    self._producers.forget_ended(self.high_watermark)
        self.log_end_offset = next_offset
        if self.high_watermark_follows_end:
            self.high_watermark = next_offset

    def _begin_change(self) -> None:
        """What a clean shutdown left is not what there is any more."""
        if self._has_clean_mark:
            try:
                CleanShutdown.remove(self._disk, self.directory)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
            self._has_clean_mark = False

    def _assign_epoch(self, leader_epoch: int, base_offset: int) -> None:
        # Saved by the next flush: until then recovery reads the epochs from the batches.
        self._epochs.assign(leader_epoch, base_offset, save=False)
        self._epochs_are_dirty = True

    # --- replication ---

    def append_as_follower(self, batches: Buffer, now_ms: int) -> int:
        """Append batches as they stand in the leader's log; returns where the log ends then.

        What is not a whole batch at the end is left out. Raises CorruptMessage where nothing is,
        or where an offset is not behind the one before; KafkaStorageError.
        """
        headers, taken, problem = scan_batches(batches)
        if not headers:
            raise CorruptMessage(f"{self.name}: the leader's answer: {problem}")
        with self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            first = headers[0]
            if self._is_empty and first.base_offset < self.log_end_offset < first.next_offset:
                # Where the leader's log begins in the midst of a batch.
                self._start_again(first.base_offset, self.log_start_offset)
            next_offset = self.log_end_offset
            for header in headers:
                if header.base_offset < next_offset:
                    raise CorruptMessage(
                        f"{self.name}: the leader sent offset {header.base_offset} "
                        f"where {next_offset} is next"
                    )
                next_offset = header.next_offset
            self._begin_change()
            data = memoryview(batches)[:taken]
            self._roll_if_full(taken, next_offset, now_ms)
            self._active.append(data, headers, now_ms)
            for header in headers:
                if header.leader_epoch > self._epochs.latest:
                    self._assign_epoch(header.leader_epoch, header.base_offset)
            self._written(data, headers, next_offset, now_ms)
        return next_offset

    def truncate_to(self, offset: int) -> None:
        """Cut off every batch that reaches `offset`, durably: the leader's log has others there.

        Raises KafkaStorageError; the log then refuses appends.
        """
        # What is committed is cut by an unclean election alone; then no compaction and no
        # retention may be at work on it.
        committed = self._maintenance_lock if offset < self.high_watermark else nullcontext()
        with committed, self._flush_lock, self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            if offset >= self.log_end_offset:
                return
            if offset < self.log_start_offset:
                self._start_again(offset, offset)
                return
            logger.info("%s: truncated from %d to %d", self.name, self.log_end_offset, offset)
            with self._failing():
                self._begin_change()
                self._lower_recovery_point(offset)
                for segment in self._segments:
                    if segment.next_offset > offset:
                        self._reader.forget_positions(segment)
                removed = [each for each in self._segments[1:] if each.base_offset >= offset]
                for segment in removed:
                    self._reader.forget(segment)
                kept = cut_segments(self._disk, self.directory, self._segments, offset)
                self._adopt_segments(kept)
                self._epochs.truncate_from_end(self.log_end_offset)
                self._producers = reload_producers(
                    self._disk, self.directory, kept, self._environment.clock.now_ms()
                )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything: the leader's log begins behind the end of this one.

        Raises KafkaStorageError; the log then refuses appends.
        """
        with self._maintenance_lock, self._flush_lock, self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            self._start_again(offset, offset)

    def _start_again(self, base_offset: int, log_start_offset: int) -> None:
        logger.info("%s: emptied, it goes on at %d", self.name, base_offset)
        with self._failing():
            self._begin_change()
            self._lower_recovery_point(base_offset)
            is_behind = base_offset >= self.log_end_offset
            if is_behind:
                # A log that ends before it begins is emptied by recovery as well.
                self._save_offset(checkpoints.LOG_START_OFFSET, log_start_offset)
            for segment in reversed(self._segments):
                self._reader.forget(segment)
                segment.remove()
                self._disk.remove(producer_state.snapshot_path(self.directory, segment.base_offset))
            self._disk.fsync_directory(self.directory)
            if not is_behind:
                self._save_offset(checkpoints.LOG_START_OFFSET, log_start_offset)
            segment = self._new_segment(base_offset)
            segment.begin()
            self._adopt_segments([segment])
            self.log_start_offset = log_start_offset
            self._epochs.truncate_from_end(0)
            self._producers = ProducerState()
            self._directory_is_dirty = True

    @property
    def _is_empty(self) -> bool:
        return len(self._segments) == 1 and self._active.size == 0

    def _lower_recovery_point(self, offset: int) -> None:
        """What is written anew from an offset on has to be read again after a crash."""
        if self.recovery_point > offset:
            self._save_offset(checkpoints.RECOVERY_POINT, offset)
            self.recovery_point = offset

    def _adopt_segments(self, segments: list[Segment]) -> None:
        """Go on with segments whose last one is written from now on."""
        self._segments = segments
        self._active = segments[-1]
        self._unsynced = [each for each in self._unsynced if each in segments]
        if self._active not in self._unsynced:
            self._unsynced.append(self._active)
        self.log_end_offset = self._active.next_offset
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After an error in here nobody knows what the files are like: the log is closed."""
        try:
            yield
        except (OSError, KafkaStorageError) as error:
            self._failure = f"{self.directory}: cannot be truncated: {error}"
            logger.critical("%s; the log takes no more appends", self._failure)
            raise KafkaStorageError(self._failure) from error

    # --- segments ---

    def _roll_if_full(self, size: int, next_offset: int, now_ms: int) -> None:
        active, config = self._active, self.config
        if active.size == 0:
            if next_offset - active.base_offset > RELATIVE_OFFSET_MAX:
                raise RecordListTooLarge("the batches have too many offsets")
            return
        if (
            active.size + size > config.segment_bytes
            or now_ms - active.created_ms > config.segment_ms
            or next_offset - active.base_offset > RELATIVE_OFFSET_MAX
            or active.index_entries >= config.segment_index_bytes // INDEX_ENTRY_BYTES
        ):
            self.roll()

    def roll(self) -> None:
        """Close the active segment and begin a new one; an empty one stays.

        Raises KafkaStorageError, and then the log is unchanged.
        """
        with self._lock:
            active = self._active
            if active.size == 0:
                return
            self._begin_change()
            segment = self._new_segment(self.log_end_offset)
            try:
                segment.begin()
                active.write_indexes()
                self._save_producers()
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
            # Until it is flushed the closed segment keeps its file, so that flush has one to sync.
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
        self._disk.write(path, (self._producers.to_bytes(),))

    # --- read ---

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_message: bool = True,
        up_to_offset: int | None = None,
    ) -> bytes:
        """Whole batches from the one that holds `offset` on, from one segment.

        The first batch can begin before `offset`; the reader skips. At most `max_bytes`, but with
        `min_one_message` at least one batch however large; only batches that end before
        `up_to_offset` (the high watermark). Empty where there is none. Raises OffsetOutOfRange,
        KafkaStorageError, CorruptMessage.
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
            if offset < self.log_start_offset:  # retention was faster
                raise self._out_of_range(offset) from None
            raise

    def read_committed(
        self, offset: int, max_bytes: int, *, min_one_message: bool = True
    ) -> tuple[bytes, list[AbortedTransaction]]:
        """As `read`, up to the last stable offset, with what was aborted of it, by first offset."""
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
            # A compaction drops aborted records and what is known of them: never one without
            # the other.
            if segments is self._segments:
                return data, aborted

    def slice(
        self, offset: int, max_bytes: int, up_to_offset: int
    ) -> tuple[FileSlice, list[AbortedTransaction]] | None:
        """As `read_committed` up to a given offset, the batches not read but where they are.

        None where that is not worth it, or `read` has to say why there is nothing. Raises
        KafkaStorageError, CorruptMessage.
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

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"{self.name}: offset {offset} is not in {self.log_start_offset}..{self.log_end_offset}"
        )

    @property
    def has_closed_segments_to_flush(self) -> bool:
        """Whether a whole segment waits to become durable: a crash would have to read it again."""
        return len(self._unsynced) > 1

    @property
    def last_stable_offset(self) -> int:
        """Every transaction that begins before it is decided; at most the high watermark."""
        with self._lock:
            unstable = self._producers.first_unstable_offset(self.high_watermark)
            if unstable is None or unstable >= self.high_watermark:
                return self.high_watermark
            return max(unstable, self.log_start_offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at `timestamp_ms` or later.

        Looks up to the high watermark. Raises KafkaStorageError.
        """
        return self._reader.first_at_timestamp(
            self._segments, timestamp_ms, self.log_start_offset, self.high_watermark
        )

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the newest timestamp; None if empty.

        None also where `delete_records` deleted that record but its segment is still there.
        """
        segments = [segment for segment in self._segments if segment.size]
        if not segments or self.log_start_offset == self.log_end_offset:
            return None
        return self.offset_for_timestamp(max(segment.max_timestamp for segment in segments))

    # --- durability ---

    def flush(self) -> int:
        """Make what is appended now durable; returns the offset up to which the log is.

        Safe beside appends, rolls, retention and reads of other threads. Raises KafkaStorageError;
        the log then refuses appends, since the kernel can have dropped what it failed to write.
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
                    with suppress(FileNotFoundError):  # retention was faster
                        segment.sync_indexes()
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
            # Only now and then: an older recovery point costs the next start some reading.
            self._save_offset(checkpoints.RECOVERY_POINT, recovery_point)
        return recovery_point

    def park(self) -> None:
        """Close the file that is written, where nothing of it waits to become durable."""
        with self._lock:
            if self.recovery_point >= self.log_end_offset:
                self._active.park()

    def _save_offset(self, name: str, offset: int) -> None:
        try:
            checkpoints.save_offset(self._disk, self.directory, name, offset)
        except OSError as error:
            raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error

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

    # --- end ---

    def close(self) -> None:
        """Make everything durable and mark the shutdown as clean; raises KafkaStorageError."""
        self._is_ending = True
        if self._failure is None and not self._has_clean_mark:
            self.flush()
            with self._maintenance_lock, self._flush_lock, self._lock:
                active = self._active
                try:
                    active.write_indexes()
                    active.sync_indexes()
                    self._save_producers()
                    CleanShutdown(active.base_offset, active.size, self.log_end_offset).save(
                        self._disk, self.directory
                    )
                except OSError as error:
                    raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
        self._failure = f"{self.name} is closed"
        for segment in self._segments:
            segment.release()

    def delete(self) -> None:
        """Delete the log and its directory; raises KafkaStorageError."""
        self._is_ending = True
        with self._maintenance_lock, self._flush_lock, self._lock:
            self._failure = f"{self.name} is deleted"
            try:
                for segment in self._segments:
                    segment.remove()
                for name in self._disk.names(self.directory):
                    self._disk.remove(self.directory / name)
                self._disk.remove_directory(self.directory)
                self._disk.fsync_directory(self.directory.parent)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
