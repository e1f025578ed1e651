"""The log of one partition: appending, following a leader, closing and deleting."""

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
from broker_core.log.segment import RELATIVE_OFFSET_MAX, Segment
from broker_core.log.truncation import cut_segments, reload_producers
from broker_core.log.validation import check_times, open_batches
from broker_core.protocol.batch_builder import empty_batch
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import EndMarker
from broker_core.protocol.produced_batches import assign_offsets, validate_batches
from broker_core.protocol.stored_batches import scan_batches

logger = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """The offsets that appended batches have in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 if the producer's timestamps are kept
    log_start_offset: int
    duplicate: bool  # the batches were in the log already; nothing was written


#: Suffix of the directories of logs that are being deleted.
DELETED_SUFFIX: Final = "-delete"


def remove_deleted(disk: Disk, directory: Path) -> None:
    """Delete the directory of a deleted log with all its files; raises OSError."""
    for name in disk.names(directory):
        disk.remove(directory / name)
    disk.remove_directory(directory)


class Log(MaintainedLog):
    """The record batches of one partition, stored in segments.

    Only one thread appends; other threads may do everything else at the same time. After a failed
    fdatasync the log refuses all appends: nothing written since then can be trusted, and a second
    fdatasync would falsely succeed because the kernel has dropped the pages.
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
        """Open or create the log in a directory of its own; recover it if necessary.

        After a crash, the data that is kept is made durable before this returns. Raises
        KafkaStorageError.
        """
        loaded = recovery.load(directory, f"{topic}-{partition}", config, environment)
        log = cls(directory, topic, partition, config, environment, loaded)
        if log.recovery_point < log.log_end_offset:
            log.flush()
        # Only few of thousands of logs are written to: each opens its file on first use.
        log.park()
        return log

    def continue_behind_acknowledged(self) -> None:
        """Let no offset that was acknowledged be given to another record.

        Where files at the log's end are missing or damaged, it ends before offsets that were
        durable once. A replica gets such records from its leader again; whoever leads calls this,
        and the log goes on behind them. Raises KafkaStorageError.
        """
        if self.acknowledged_end <= self.log_end_offset:
            return  # as nearly always: without waiting for anything
        with self._maintenance_paused(), self._flush_lock, self._lock:
            lost, behind = self.log_end_offset, self.acknowledged_end
            if behind <= lost or self._failure is not None:
                return
            logger.warning("%s: goes on at %d, behind what was acknowledged", self.name, behind)
            with self._failing():
                self._begin_change()
                # First: recovery must not look for the lost offsets in the segment before.
                self._save_offset(checkpoints.RECOVERY_POINT, behind)
                self.recovery_point = behind
                if self._is_empty and self.log_start_offset == lost:
                    self._save_offset(checkpoints.LOG_START_OFFSET, behind)
                    self.log_start_offset = behind
                    self._active.remove()
                    self._segments = []
                else:
                    self._active.write_indexes(durably=True)
                segment = self._new_segment(behind)
                segment.begin()
                self._disk.fsync_directory(self.directory)
                self._adopt_segments([*self._segments, segment])
            if self.high_watermark_follows_end:
                self.high_watermark = behind

    # --- append ---

    def append(
        self,
        batches: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        verified: bool = True,
        headers: list[BatchHeader] | None = None,
    ) -> AppendResult:
        """Check batches from a producer, assign their offsets in place, write them at once.

        `headers` are those of batches that `open_batches` has returned already. If an idempotent
        producer repeats a batch, the result has the offsets of the first copy. `verified` says that
        the coordinator has confirmed the transaction; a transaction that begins with these batches
        needs it. Nothing is durable before `flush`. Raises BrokerError
        subclasses, and then the log is unchanged: CorruptMessage, InvalidRecord, InvalidTimestamp,
        MessageTooLarge, UnsupportedCompressionType, OutOfOrderSequenceNumber,
        InvalidProducerEpoch, DuplicateSequenceNumber, InvalidTxnState, RecordListTooLarge,
        KafkaStorageError.
        """
        config = self.config
        if headers is None:
            if config.opens_batches:
                batches, headers = open_batches(batches, config, self.name)
            else:
                headers = validate_batches(batches, max_batch_bytes=config.max_message_bytes)
        check_times(headers, config, now_ms)
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
        """Append batches of the broker itself: transactional offsets and transaction markers.

        `marker` is the content of a control batch. Raises InvalidProducerEpoch,
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
                    # `last_stable_offset` would do it too, but it may never be called.
                    self._producers.forget_ended(self.high_watermark)
        self.log_end_offset = next_offset
        if self.high_watermark_follows_end:
            self.high_watermark = next_offset

    def _assign_epoch(self, leader_epoch: int, base_offset: int) -> None:
        # The next flush saves it; until then, recovery reads the epochs from the batches.
        self._epochs.assign(leader_epoch, base_offset, save=False)
        self._epochs_are_dirty = True

    # --- replication ---

    def append_as_follower(self, batches: Buffer, now_ms: int) -> int:
        """Append batches exactly as they are in the leader's log; return the new log end offset.

        An incomplete batch at the end is left out. Raises CorruptMessage if there is no whole batch
        or if offsets do not ascend; KafkaStorageError.
        """
        headers, taken, problem = scan_batches(batches)
        if not headers:
            raise CorruptMessage(f"{self.name}: the leader's answer: {problem}")
        if not self.config.compacts:
            self._fill_gap(headers[0].base_offset, now_ms)
        with self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            first = headers[0]
            if self._is_empty and first.base_offset < self.log_end_offset < first.next_offset:
                # The leader's log begins in the middle of this batch.
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

    def _fill_gap(self, offset: int, now_ms: int) -> None:
        """Take over that the leader's log has no records before an offset: they are lost there.

        Without compaction, recovery takes a gap for damage, and would cut what follows it.
        """
        while (end := self.log_end_offset) < offset:
            self.append_as_follower(
                empty_batch(end, min(offset, end + RELATIVE_OFFSET_MAX)), now_ms
            )

    def truncate_to(self, offset: int) -> None:
        """Remove, durably, every batch that reaches `offset`: the leader's log differs there.

        Raises KafkaStorageError; the log then refuses appends.
        """
        # Only an unclean election cuts committed records; compaction and retention must not work
        # on them at the same time.
        committed = self._maintenance_paused() if offset < self.high_watermark else nullcontext()
        with committed, self._flush_lock, self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            self.acknowledged_end = min(self.acknowledged_end, offset)
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
                # If a batch reached beyond the offset, the log ends before it.
                self._lower_recovery_point(self.log_end_offset)
                self.acknowledged_end = min(self.acknowledged_end, self.log_end_offset)
                self._epochs.truncate_from_end(self.log_end_offset)
                self._producers = reload_producers(
                    self._disk, self.directory, kept, self._environment.clock.now_ms()
                )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all batches: the leader's log begins behind the end of this one.

        Raises KafkaStorageError; the log then refuses appends.
        """
        with self._maintenance_paused(), self._flush_lock, self._lock:
            if self._failure is not None:
                raise KafkaStorageError(self._failure)
            self._start_again(offset, offset)

    def _start_again(self, base_offset: int, log_start_offset: int) -> None:
        logger.info("%s: emptied, it goes on at %d", self.name, base_offset)
        self.acknowledged_end = 0
        with self._failing():
            self._begin_change()
            self._lower_recovery_point(base_offset)
            is_behind = base_offset >= self.log_end_offset
            if is_behind:
                # Recovery also empties a log whose end is before its start offset.
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
        """Lower the recovery point: recovery has to read what is rewritten from `offset` on."""
        if self.recovery_point > offset:
            self._save_offset(checkpoints.RECOVERY_POINT, offset)
            self.recovery_point = offset

    def _adopt_segments(self, segments: list[Segment]) -> None:
        """Continue with these segments; the last one becomes the active segment."""
        self._segments = segments
        self._active = segments[-1]
        self._unsynced = [each for each in self._unsynced if each in segments]
        if self._active not in self._unsynced:
            self._unsynced.append(self._active)
        self.log_end_offset = self._active.next_offset
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Close the log if an error occurs inside: the state of its files is then unknown."""
        try:
            yield
        except (OSError, KafkaStorageError) as error:
            self._failure = f"{self.directory}: cannot be truncated: {error}"
            logger.critical("%s; the log takes no more appends", self._failure)
            raise KafkaStorageError(self._failure) from error

    # --- end ---

    def close(self) -> None:
        """Make everything durable and mark the shutdown as clean; raises KafkaStorageError."""
        self.end_maintenance()
        if self._failure is None and not self._has_clean_mark:
            self.flush()
            with self._maintenance_lock, self._flush_lock, self._lock:
                active = self._active
                try:
                    active.write_indexes()
                    active.indexes.sync()
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
        self.end_maintenance()
        with self._maintenance_lock, self._flush_lock, self._lock:
            self._failure = f"{self.name} is deleted"
            for segment in self._segments:
                segment.release()
            # After a crash the remaining files must not be taken for a log with a later start.
            going = self.directory.with_name(
                f"{self.directory.name}.{self._environment.new_uuid().hex}{DELETED_SUFFIX}"
            )
            try:
                self._disk.rename(self.directory, going)
                self._disk.fsync_directory(going.parent)
                remove_deleted(self._disk, going)
            except OSError as error:
                raise KafkaStorageError(f"{self.directory}: {error.strerror}") from error
