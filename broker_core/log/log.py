"""A partition's log: append, follow a leader, end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.environment import Buffer, Disk, Environment
from broker_core.errors import (
    CorruptMessage,
    KafkaStorageError,
)
from broker_core.log import checkpoints, producer_state, recovery
from broker_core.log.checkpoints import CleanShutdown
from broker_core.log.config import LogConfig
from broker_core.log.maintenance import MaintainedLog
from broker_core.log.producer_state import ProducerState
from broker_core.log.recovery import remember_producer
from broker_core.log.segment import Segment
from broker_core.log.truncation import cut_segments, reload_producers
from broker_core.log.validation import prepare
from broker_core.protocol.control_records import EndMarker
from broker_core.protocol.records import (
    BatchHeader,
    assign_offsets,
    scan_batches,
    validate_batches,
)

logger = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """Where batches stand in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 where the producer's timestamps are kept
    log_start_offset: int
    duplicate: bool  # they were there already; nothing was written


#: Directories of logs that are being deleted.
DELETED_SUFFIX: Final = "-delete"


def remove_deleted(disk: Disk, directory: Path) -> None:
    """Delete what is in the directory of a deleted log, and it; raises OSError."""
    for name in disk.names(directory):
        disk.remove(directory / name)
    disk.remove_directory(directory)


class Log(MaintainedLog):
    """The batches of one partition in segments, see the package.

    Appends come from one thread; everything else may run beside them in other threads. After a
    failed fdatasync nothing that was written since can be trusted, and a second attempt would lie
    (the kernel forgets the pages): the log then refuses all appends.
    """

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
            for segment in self._segments:
                segment.release()
            # What a crash leaves of it must not be taken for a log that begins later.
            going = self.directory.with_name(
                f"{self.directory.name}.{self._environment.new_uuid().hex}{DELETED_SUFFIX}"
            )
            try:
                self._disk.rename(self.directory, going)
                self._disk.fsync_directory(going.parent)
                remove_deleted(self._disk, going)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
