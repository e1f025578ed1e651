"""Keep the newest record of each key: Kafka's log cleaner for one log.

Compaction reads closed segments twice: first to find the newest offset of every key, then to write
the records that stay into new segments. Offsets never change; batches keep their first and last
offset, and so their producer's sequence numbers. Records of aborted transactions are dropped; a
transaction's marker is dropped once none of its records are left. A tombstone (a record without
value) stays for `delete.retention.ms` after the first compaction that saw it, so that a reader has
that long to learn of the deletion (KIP-534).

A crash is safe at any moment: new batches are written to `.log.cleaned`, which the next start
deletes; once durable, that file is renamed to `.log.swap`, which the next start puts in the place
of the old segments.

The old segments stay until the new one is whole, so compaction needs room for both. It leaves some
to the appends of all logs, and begins only where the largest of its results has room.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker_core.environment import Disk
from broker_core.errors import BrokerError, KafkaStorageError
from broker_core.log import producer_state
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.checkpoints import load_offset, save_offset
from broker_core.log.config import FOREVER, LogConfig
from broker_core.log.scanning import Scan
from broker_core.log.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, segment_path
from broker_core.log.segment_indexes import DERIVED_SUFFIXES
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import read_end_marker
from broker_core.protocol.record_reader import RecordReader, read_records
from broker_core.protocol.stored_batches import scan_batches

logger = logging.getLogger(__name__)

CLEANED_SUFFIX: Final = ".log.cleaned"
SWAP_SUFFIX: Final = ".log.swap"
FIRST_DIRTY_OFFSET: Final = "cleaner-offset"

KEYS_MAX: Final = 200_000  # keys per pass, about 35 MB; the next pass continues after them
_WRITE_BYTES: Final = 1024 * 1024
#: Free bytes that compaction leaves to appends.
_RESERVE_BYTES: Final = 16 * 1024 * 1024
#: Records that are read before other threads may run: some tenths of a millisecond.
_RECORDS_AT_ONCE: Final = 500
#: Records of a batch that is compacted; one of a megabyte has a tenth of that.
_RECORDS_MAX: Final = 250_000
_DELETE_HORIZON_BIT: Final = 0x40
_LOG_APPEND_TIME_BIT: Final = 0x08


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of one compaction."""

    bytes_before: int
    bytes_after: int
    segments_before: int
    segments_after: int
    first_dirty_offset: int  # where the next compaction begins


# Puts a new segment in the place of old ones; returns False if those have left the log.
Replace = Callable[[list[Segment], Segment], bool]


class _Stopped(Exception):
    pass


class _Unreadable(Exception):
    """The records of a batch cannot be read, or are too many."""


class Compaction:
    """One pass over a log's closed segments."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        config: LogConfig,
        log_start_offset: int,
        now_ms: int,
        *,
        aborted: Iterable[AbortedTransaction] = (),
        keys_max: int = KEYS_MAX,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._keys_max = keys_max
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for each in aborted:
            self._aborted.setdefault(each.producer_id, []).append(each)
        # Producers whose current transaction has at least one record that stays, in log order.
        self._has_records: set[int] = set()
        self._is_stopped = is_stopped
        self._horizon_ms = min(now_ms + config.delete_retention_ms, FOREVER)
        self._newest: dict[bytes, int] = {}  # key's digest -> offset of its newest record

    def run(self, segments: list[Segment], replace: Replace) -> CompactionResult | None:
        """Compact closed, durable, committed segments; return None if no compaction is due.

        Also returns None if `is_stopped` interrupted it; the segments done by then stay compacted.
        Raises OSError, with ENOSPC also if there is no room for the result, and KafkaStorageError
        for a segment that cannot be read.
        """
        try:
            return self._run(segments, replace)
        except _Stopped:
            return None

    def _run(self, segments: list[Segment], replace: Replace) -> CompactionResult | None:
        segments = self._without_young(segments)
        # If it is damaged, everything is compacted again.
        cleaned = load_offset(self._disk, self._directory, FIRST_DIRTY_OFFSET).offset or 0
        first_dirty = max(cleaned, self._log_start_offset)
        dirty = [segment for segment in segments if segment.next_offset > first_dirty]
        if not dirty or not self._is_due(segments, dirty):
            return None
        # Before anything is read: a disk that is full should have no work with it each round.
        self._check_room(max(map(_size, self._groups(segments))))
        end = self._find_newest(dirty, first_dirty)
        segments = [segment for segment in segments if segment.base_offset < end]
        bytes_before = bytes_after = segments_after = 0
        for group in self._groups(segments):
            before = _size(group)
            new = self._rewrite(group)
            if new is not None:
                indexes = new.index_files()
                if not replace(group, new):
                    drop_result(self._disk, self._directory, new)
                    return None
                for path, content in indexes:
                    self._disk.replace(path, content)
                new.release()
            bytes_before += before
            bytes_after += before if new is None else new.size
            segments_after += 1
        save_offset(self._disk, self._directory, FIRST_DIRTY_OFFSET, end)
        return CompactionResult(bytes_before, bytes_after, len(segments), segments_after, end)

    def _without_young(self, segments: list[Segment]) -> list[Segment]:
        """Leave out records younger than min.compaction.lag.ms: that setting promises they stay."""
        lag_ms = self._config.min_compaction_lag_ms
        count = 0
        for segment in segments:
            if lag_ms > 0 and self._now_ms - segment.max_timestamp < lag_ms:
                break
            count += 1
        return segments[:count]

    def _is_due(self, segments: list[Segment], dirty: list[Segment]) -> bool:
        if _size(dirty) >= self._config.min_cleanable_dirty_ratio * _size(segments):
            return True
        oldest = dirty[0].max_timestamp
        return self._now_ms - oldest > self._config.max_compaction_lag_ms

    def _check_room(self, size: int) -> None:
        """Raise OSError if so many bytes more would take what is left to appends."""
        free = self._disk.free_bytes(self._directory)
        needed = size + _RESERVE_BYTES
        if free is not None and free < needed:
            told = f"compaction waits until {needed / 1024 / 1024:.1f} MiB are free"
            raise OSError(errno.ENOSPC, told)

    def _find_newest(self, dirty: list[Segment], first_dirty: int) -> int:
        """Collect the newest offset of each key; return the offset up to which keys are known."""
        newest = self._newest
        end = first_dirty
        for segment in dirty:
            for header, data in self._batches(segment):
                if header.next_offset <= first_dirty or self._is_aborted(header):
                    continue
                if len(newest) + header.record_count > self._keys_max and end > first_dirty:
                    return end
                found: dict[bytes, int] = {}
                try:
                    for piece in self._records(header, data):
                        for offset, _, key, _, _ in piece:
                            if key is not None:
                                found[_digest(key)] = offset
                except _Unreadable:
                    pass  # it stays, with all of its keys
                else:
                    newest.update(found)
                end = header.next_offset
            end = segment.next_offset
        return end

    def _groups(self, segments: list[Segment]) -> Iterable[list[Segment]]:
        """Group neighbouring segments that fit into one: compaction leaves small segments."""
        group: list[Segment] = []
        size = 0
        for segment in segments:
            if group and (
                size + segment.size > self._config.segment_bytes
                or segment.next_offset - group[0].base_offset > RELATIVE_OFFSET_MAX
            ):
                yield group
                group, size = [], 0
            group.append(segment)
            size += segment.size
        if group:
            yield group

    def _batches(self, segment: Segment) -> Iterable[tuple[BatchHeader, bytes]]:
        scan = Scan(self._disk.open(segment.path), segment.size, check_crc=True)
        for header, _, data in scan:
            if self._is_stopped():
                raise _Stopped
            yield header, data
        if scan.problem is not None:
            # A rewrite would make the damage permanent; a replica may still hold the batch.
            raise KafkaStorageError(f"{segment.path} is damaged: {scan.problem}")

    def _records(self, header: BatchHeader, data: bytes) -> Iterator[list[_Record]]:
        """Yield the records of a batch, some at a time; raises _Unreadable.

        A list of all would keep other threads from the interpreter: there can be a million.
        """
        if header.is_control:
            return
        if header.record_count > _RECORDS_MAX:
            # Compressed, they may take a few kilobytes, and all that stay are in memory at once.
            self._tell_that_it_stays(header, f"has {header.record_count} records")
            raise _Unreadable
        try:
            reader = RecordReader(data, header)
            while piece := reader.read(_RECORDS_AT_ONCE):
                if self._is_stopped():
                    raise _Stopped
                yield piece
        except BrokerError as error:
            self._tell_that_it_stays(header, f"cannot be opened ({error})")
            raise _Unreadable from error

    def _tell_that_it_stays(self, header: BatchHeader, why: str) -> None:
        logger.warning(
            "%s: the batch at offset %d %s and stays as it is",
            self._directory.name,
            header.base_offset,
            why,
        )

    def _rewrite(self, group: list[Segment]) -> Segment | None:
        """Write what stays to a `.log.swap` file; return None if one segment stays as it is.

        A failure leaves no file behind, so that nothing of it takes room.
        """
        first = group[0]
        new = Segment(
            self._disk,
            self._directory,
            first.base_offset,
            size=0,
            next_offset=first.base_offset,
            created_ms=first.created_ms,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        cleaned = segment_path(self._directory, first.base_offset, CLEANED_SUFFIX)
        try:
            self._disk.remove(cleaned)
            new.begin(cleaned)
            if not self._write(group, new):
                drop_result(self._disk, self._directory, new)
                return None
            new.sync()
            swap = segment_path(self._directory, first.base_offset, SWAP_SUFFIX)
            self._disk.rename(cleaned, swap)
            self._disk.fsync_directory(self._directory)
        except BaseException:
            with suppress(OSError):  # then the disk fails, of which the first error tells
                drop_result(self._disk, self._directory, new)
            raise
        return new

    def _write(self, group: list[Segment], new: Segment) -> bool:
        """Write what stays of a group; return False if that is one segment as it is."""
        changed = len(group) > 1
        buffer = bytearray()
        for segment in group:
            for header, data in self._batches(segment):
                original = data[header.position : header.position + header.size]
                kept = self._retain(header, data, original)
                changed = changed or kept is not original
                if kept is None:
                    continue
                new.note(scan_batches(kept)[0][0], new.size + len(buffer))
                buffer += kept
                if len(buffer) >= _WRITE_BYTES:
                    # Others may have taken the room in the meantime.
                    self._check_room(len(buffer))
                    new.extend(buffer)
                    buffer.clear()
        self._check_room(len(buffer))
        new.extend(buffer)
        new.next_offset = group[-1].next_offset
        return changed

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        return any(
            each.first_offset <= header.base_offset <= each.last_offset
            for each in self._aborted.get(header.producer_id, ())
        )

    def _retain(
        self, header: BatchHeader, data: bytes, original: bytes
    ) -> bytes | bytearray | None:
        """Return the batch as it is, rebuilt with the records that stay, or None."""
        if self._is_aborted(header):
            return None
        retain = self._retain_marker if header.is_control else self._retain_records
        try:
            kept = retain(header, data, original)
        except (ValueError, OverflowError, BrokerError) as error:
            # One record of a client must not keep all others in the log for ever.
            self._tell_that_it_stays(header, f"cannot be written again ({error})")
            kept = original
        if header.is_control:
            return kept
        if kept is not None and header.is_transactional:
            self._has_records.add(header.producer_id)
        return kept

    def _retain_marker(
        self, header: BatchHeader, data: bytes, original: bytes
    ) -> bytes | bytearray | None:
        """Keep a marker as long as records of its transaction, and then as long as a tombstone."""
        if header.producer_id in self._has_records:
            self._has_records.remove(header.producer_id)
            return original
        horizon_ms = header.delete_horizon_ms
        if horizon_ms >= 0:
            return original if self._now_ms < horizon_ms else None
        marker = read_end_marker(data, header)
        if marker is None:
            return original
        ((_, timestamp, key, value, _),) = read_records(data, header)
        return build_batch(
            [(timestamp, key, value, ())],
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            is_transactional=True,
            is_control=True,
            base_timestamp=self._horizon_ms,
            attributes=_DELETE_HORIZON_BIT,
        )

    def _retain_records(
        self, header: BatchHeader, data: bytes, original: bytes
    ) -> bytes | bytearray | None:
        horizon_ms = header.delete_horizon_ms
        kept: list[_Record] = []
        count = 0
        try:
            for piece in self._records(header, data):
                count += len(piece)
                kept += [record for record in piece if self._stays(record, horizon_ms)]
        except _Unreadable:
            return original
        if not count:
            return original
        if not kept:
            return None
        has_tombstone = any(record[3] is None for record in kept)
        if len(kept) == count and (horizon_ms >= 0 or not has_tombstone):
            return original
        attributes = header.attributes & _LOG_APPEND_TIME_BIT
        if has_tombstone:
            attributes |= _DELETE_HORIZON_BIT
            if horizon_ms < 0:
                horizon_ms = self._horizon_ms
        return build_batch(
            [record[1:] for record in kept],
            base_offset=header.base_offset,
            compression=header.compression,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            offset_deltas=[record[0] - header.base_offset for record in kept],
            last_offset_delta=header.last_offset_delta,
            base_timestamp=horizon_ms if has_tombstone else None,
            attributes=attributes,
        )

    def _stays(self, record: _Record, horizon_ms: int) -> bool:
        offset, _, key, value, _ = record
        if key is None or self._newest.get(_digest(key), -1) > offset:
            return False
        return value is not None or horizon_ms < 0 or self._now_ms < horizon_ms


_Record = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()


def _size(segments: Iterable[Segment]) -> int:
    return sum(segment.size for segment in segments)


def drop_result(disk: Disk, directory: Path, new: Segment) -> None:
    """Remove a result that does not take the place of the old segments; raises OSError.

    Not after `adopt` has begun: the next start needs it then.
    """
    new.release()
    for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
        disk.remove(segment_path(directory, new.base_offset, suffix))


def adopt(disk: Disk, directory: Path, old: list[Segment], new: Segment) -> None:
    """Replace the old segments by the swap file; raises OSError."""
    _swap(disk, directory, new.base_offset, [segment.base_offset for segment in old])


def finish_swap(disk: Disk, directory: Path, base_offset: int, bases: list[int]) -> None:
    """Complete, at start-up, a swap that a crash interrupted; raises OSError.

    `bases` are the base offsets of all segments.
    """
    path = segment_path(directory, base_offset, SWAP_SUFFIX)
    size = disk.size(path) or 0
    end = base_offset + 1
    for header, _, _ in Scan(disk.open(path), size, check_crc=False):
        end = header.next_offset
    # Segments behind the last batch that stayed may be left; the next compaction handles them.
    _swap(disk, directory, base_offset, [base for base in bases if base_offset <= base < end])


def _swap(disk: Disk, directory: Path, base_offset: int, replaced: list[int]) -> None:
    # Indexes go first: they must never be taken for indexes of the new batches. The new segment
    # needs no transaction index, since compaction removed the records of aborted transactions.
    for base in {base_offset, *replaced}:
        for suffix in DERIVED_SUFFIXES:
            disk.remove(segment_path(directory, base, suffix))
    for base in replaced:
        if base != base_offset:
            disk.remove(segment_path(directory, base, LOG_SUFFIX))
            disk.remove(producer_state.snapshot_path(directory, base))
    disk.rename(
        segment_path(directory, base_offset, SWAP_SUFFIX),
        segment_path(directory, base_offset, LOG_SUFFIX),
    )
