"""Loading a log from the files of its directory: Kafka's LogLoader.

After a clean shutdown only the indexes of the last segment and small files are read. After a crash
every segment from the recovery point on is read: batches up to the first incomplete or damaged one
stay, the rest is cut off, and indexes and producer state are rebuilt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker_core.environment import Buffer, Environment
from broker_core.errors import KafkaStorageError
from broker_core.log import checkpoints, producer_state
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.checkpoints import CleanShutdown
from broker_core.log.compaction import CLEANED_SUFFIX, SWAP_SUFFIX, finish_swap
from broker_core.log.config import LogConfig
from broker_core.log.leader_epochs import LeaderEpochs
from broker_core.log.producer_state import ProducerState
from broker_core.log.scanning import Scan
from broker_core.log.segment import LOG_SUFFIX, RELATIVE_OFFSET_MAX, Segment, segment_path
from broker_core.log.segment_indexes import DERIVED_SUFFIXES, TRANSACTION_INDEX_SUFFIX
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import read_end_marker

logger = logging.getLogger(__name__)

DELETED_SUFFIX: Final = ".deleted"
TEMPORARY_SUFFIX: Final = ".tmp"

#: Called for each batch of a segment; the header's position refers to the data.
Remember = Callable[[Segment, BatchHeader, bytes], None]


class UnknownStart(KafkaStorageError, code=KafkaStorageError.code, retriable=True):
    """Which records of the log were deleted is not known; nothing in its directory is changed."""


@dataclass
class LoadedLog:
    """The result of recovery."""

    segments: list[Segment]  # ascending, at least one; the last is open for writing
    log_start_offset: int
    recovery_point: int
    producers: ProducerState
    epochs: LeaderEpochs
    unsynced: list[Segment] = field(default_factory=list)  # may not be on disk yet
    bytes_cut: int = 0
    #: Everything before it was durable once; beyond the end of the segments if files are missing.
    acknowledged_end: int = 0
    is_clean: bool = False  # the files are as a clean shutdown left them, with its mark


def load(directory: Path, name: str, config: LogConfig, environment: Environment) -> LoadedLog:
    """Open or create a log's directory; raises KafkaStorageError, UnknownStart if it is damaged."""
    try:
        return _Loader(directory, name, config, environment).load()
    except KafkaStorageError:
        raise
    except OSError as error:
        raise KafkaStorageError(f"{directory}: {error.strerror or error}") from error


def remember_producer(
    producers: ProducerState, segment: Segment, header: BatchHeader, data: Buffer, now_ms: int
) -> None:
    """Update producer state and transaction index from a batch that is in a segment.

    `header.position` refers to `data`.
    """
    if not header.is_control:
        producers.update(header, now_ms)
        return
    marker = read_end_marker(data, header)
    if marker is None:
        return
    ended = producers.end_transaction(header, marker, now_ms)
    if ended is None or ended.committed:
        return
    undecided = producers.first_open_offset()
    segment.indexes.note_aborted(
        AbortedTransaction(
            ended.producer_id,
            ended.first_offset,
            ended.last_offset,
            header.next_offset if undecided is None else undecided,
        )
    )


class _Loader:
    def __init__(
        self, directory: Path, name: str, config: LogConfig, environment: Environment
    ) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.disk = environment.disk
        self.now_ms = environment.clock.now_ms()
        self.bytes_cut = 0
        self.unsynced: list[Segment] = []

    def load(self) -> LoadedLog:
        self.disk.make_directory(self.directory)
        start = self._start_offset()
        names = self._tidy(self.disk.names(self.directory))
        bases = offsets_of(names, LOG_SUFFIX)
        snapshots = offsets_of(names, producer_state.SUFFIX)
        # Recovery reads everything if it is not known.
        recovery_point = self._checkpoint(checkpoints.RECOVERY_POINT) or 0
        epochs = LeaderEpochs.load(self.disk, self.directory)
        clean = CleanShutdown.load(self.disk, self.directory)
        segments = self._segments(bases)
        # Both are written after the records before them are on disk, and lowered before a cut.
        acknowledged = max(recovery_point, 0 if clean is None else clean.log_end_offset)
        if not segments:
            acknowledged = max([acknowledged, *snapshots, *(at for _, at in epochs.entries)])
        self._report_missing_start(bases, start)
        producers: ProducerState | None = None
        if clean is not None and segments:
            producers = self._resume(segments, snapshots, clean)
        is_clean = producers is not None
        if producers is None:
            CleanShutdown.remove(self.disk, self.directory)
            producers = self._recover(segments, snapshots, recovery_point, epochs)
            recovery_point = min(recovery_point, segments[-1].next_offset) if segments else 0
        else:
            recovery_point = segments[-1].next_offset
        if not segments or segments[-1].next_offset < start:
            # DeleteRecords is durable at once; the records it deleted may not have been.
            is_clean = False
            CleanShutdown.remove(self.disk, self.directory)
            for segment in segments:
                segment.remove()
            segments = [self._new_segment(start)]
            self.unsynced = segments[:]
            producers, recovery_point = ProducerState(), start
        segments[-1].find_age()
        end = segments[-1].next_offset
        if end < acknowledged:
            logger.error(
                "%s: offsets %d to %d are lost: they were on disk once (%s, %s), and the files in "
                "%s end before them",
                self.name,
                end,
                acknowledged - 1,
                checkpoints.RECOVERY_POINT,
                checkpoints.CLEAN_SHUTDOWN,
                self.directory,
            )
        epochs.truncate_from_end(end)
        epochs.truncate_from_start(max(start, segments[0].base_offset))
        for offset in snapshots:
            if offset > end:
                self.disk.remove(producer_state.snapshot_path(self.directory, offset))
        return LoadedLog(
            segments=segments,
            log_start_offset=max(start, segments[0].base_offset),
            recovery_point=recovery_point,
            producers=producers,
            epochs=epochs,
            unsynced=self.unsynced,
            is_clean=is_clean,
            bytes_cut=self.bytes_cut,
            acknowledged_end=acknowledged,
        )

    def _checkpoint(self, name: str) -> int | None:
        stored = checkpoints.load_offset(self.disk, self.directory, name)
        if not stored.is_sound:
            logger.warning(
                "%s: %s is damaged: %s",
                self.name,
                self.directory / name,
                "it is not used" if stored.offset is None else f"it says {stored.offset}",
            )
        return stored.offset

    def _start_offset(self) -> int:
        """Return where the log starts; raises UnknownStart.

        With a lower offset, records come back that were deleted; with a higher one others are lost.
        """
        start = self._checkpoint(checkpoints.LOG_START_OFFSET)
        if start is None:
            bases = offsets_of(self.disk.names(self.directory), LOG_SUFFIX)
            first = bases[0] if bases else 0
            raise UnknownStart(
                f"{self.directory / checkpoints.LOG_START_OFFSET} is damaged. Write into it, as a "
                f"line, the first offset that may be read: {first} is that of the first file, and "
                "brings back what a request has deleted in it"
            )
        return start

    def _report_missing_start(self, bases: list[int], start: int) -> None:
        """Log that the oldest segments are gone.

        Retention saves the new start before it deletes segments.
        """
        if bases and bases[0] > start:
            logger.error(
                "%s: offsets %d to %d are lost: the log starts at %d (%s), and its first file is "
                "%s",
                self.name,
                start,
                bases[0] - 1,
                start,
                checkpoints.LOG_START_OFFSET,
                segment_path(self.directory, bases[0]),
            )

    def _tidy(self, names: list[str]) -> list[str]:
        """Finish or undo what a crash interrupted; return the names that remain."""
        for name in names:
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
                self.disk.remove(self.directory / name)
        for base_offset in offsets_of(names, SWAP_SUFFIX):
            finish_swap(self.disk, self.directory, base_offset, offsets_of(names, LOG_SUFFIX))
        names = self.disk.names(self.directory)
        bases = set(offsets_of(names, LOG_SUFFIX))
        for suffix in DERIVED_SUFFIXES:
            for orphan in set(offsets_of(names, suffix)) - bases:
                self.disk.remove(segment_path(self.directory, orphan, suffix))
        return names

    def _new_segment(self, base_offset: int) -> Segment:
        segment = self._segment(base_offset, 0, base_offset)
        segment.begin()
        return segment

    def _segment(self, base_offset: int, size: int, next_offset: int) -> Segment:
        return Segment(
            self.disk,
            self.directory,
            base_offset,
            size=size,
            next_offset=next_offset,
            created_ms=self.now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )

    def _segments(self, bases: list[int]) -> list[Segment]:
        segments = []
        for index, base in enumerate(bases):
            size = self.disk.size(segment_path(self.directory, base)) or 0
            # The end of the last segment is not known yet.
            following = bases[min(index + 1, len(bases) - 1)]
            segments.append(self._segment(base, size, following))
        return segments

    def _resume(
        self, segments: list[Segment], snapshots: list[int], clean: CleanShutdown
    ) -> ProducerState | None:
        """Load what a clean shutdown left; return None if the files do not match its mark."""
        last = segments[-1]
        if (last.base_offset, last.size) != (clean.segment_base_offset, clean.segment_bytes):
            return None
        found = producer_state.load_snapshot(
            self.disk, self.directory, snapshots, clean.log_end_offset
        )
        if clean.log_end_offset == 0:
            found = (0, ProducerState())
        if found is None or found[0] != clean.log_end_offset:
            return None
        last.next_offset = clean.log_end_offset
        if not last.resume():
            return None
        self._check_indexes(segments[:-1])
        return found[1]

    def _check_indexes(self, segments: list[Segment]) -> None:
        """Rebuild the indexes of closed segments whose index files cannot be right."""
        for segment in segments:
            if segment.indexes.are_stored(segment.size):
                continue
            logger.warning("%s: the indexes of %s are rebuilt", self.name, segment.path.name)
            next_offset = segment.next_offset
            segment.begin()
            scan = Scan(segment.handle().file, segment.size, check_crc=False)
            for header, position, _ in scan:
                segment.note(header, position)
            segment.next_offset = next_offset
            segment.write_indexes(durably=True)
            segment.release()

    def _recover(
        self,
        segments: list[Segment],
        snapshots: list[int],
        recovery_point: int,
        epochs: LeaderEpochs,
    ) -> ProducerState:
        """Read the segments that may be torn, cut them, and rebuild what is derived from them."""
        if not segments:
            return ProducerState()
        damaged = next(
            (
                index
                for index, segment in enumerate(segments)
                if segment.next_offset > recovery_point or segment is segments[-1]
            ),
            0,
        )
        found = producer_state.load_snapshot(
            self.disk, self.directory, snapshots, segments[damaged].base_offset
        )
        offset, producers = found or (segments[0].base_offset, ProducerState())

        def remember(segment: Segment, header: BatchHeader, data: bytes) -> None:
            if header.base_offset >= offset and header.producer_id >= 0:
                remember_producer(producers, segment, header, data, self.now_ms)
            if header.leader_epoch > epochs.latest:
                epochs.assign(header.leader_epoch, header.base_offset, save=False)

        known_epochs = epochs.entries
        self._check_indexes(segments[:damaged])
        for segment in segments[:damaged]:
            if segment.next_offset > offset:
                self._read_producers(segment, remember)
        for index in range(damaged, len(segments)):
            whole = self._rebuild(segments[index], remember)
            is_last = index == len(segments) - 1
            if not whole or is_last:
                self._drop(segments, index + 1)
                break
            segments[index].write_indexes()
            segments[index].release()
        if epochs.entries != known_epochs:
            epochs.save()
        return producers

    def _read_producers(self, segment: Segment, remember: Remember) -> None:
        """Rebuild producer state only, from a segment that is known to be undamaged."""
        file = self.disk.open(segment.path)
        for header, _, data in Scan(file, segment.size, check_crc=False):
            remember(segment, header, data)
        # The file of its transaction index exists already.
        segment.release()

    def _rebuild(self, segment: Segment, remember: Remember) -> bool:
        """Check a segment, rebuild its indexes and cut it; return whether all of it was valid."""
        following = segment.next_offset if segment.next_offset > segment.base_offset else None
        file_size = segment.size
        segment.begin()
        self.disk.remove(
            segment_path(self.directory, segment.base_offset, TRANSACTION_INDEX_SUFFIX)
        )
        self.unsynced.append(segment)
        next_offset = segment.base_offset
        segment.next_offset = next_offset
        valid = 0
        scan = Scan(segment.handle().file, file_size, check_crc=True)
        for header, position, data in scan:
            # Neither the CRC nor a length covers the base offset. Only compaction leaves gaps.
            if (
                header.base_offset < next_offset
                or (header.base_offset > next_offset and not self.config.compacts)
                or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
                or (following is not None and header.next_offset > following)
            ):
                scan.problem = f"offset {header.base_offset} is out of order"
                break
            segment.note(header, position)
            next_offset = header.next_offset
            remember(segment, header, data)
            valid = position + header.size
        if valid == file_size:
            segment.size = valid
            if following is None or next_offset == following:
                return True
            if self.config.compacts:
                # A compacted segment can end before the next one begins.
                segment.next_offset = following
                return True
            logger.warning(
                "%s: %s ends at offset %d, before the next segment: the log goes on from there",
                self.name,
                segment.path.name,
                next_offset,
            )
            return False
        cut = file_size - valid
        self.bytes_cut += cut
        logger.warning(
            "%s: %s cut at %d: %s; %d bytes dropped, the log goes on at offset %d",
            self.name,
            segment.path.name,
            valid,
            scan.problem,
            cut,
            segment.next_offset,
        )
        segment.truncate(valid)
        return False

    def _drop(self, segments: list[Segment], index: int) -> None:
        """Delete the segments behind a cut: they would leave a gap in the log's offsets."""
        for segment in segments[index:]:
            self.bytes_cut += segment.size
            logger.warning(
                "%s: %s with %d bytes lies behind the cut and is dropped",
                self.name,
                segment.path.name,
                segment.size,
            )
            segment.remove()
        if segments[index:]:
            # A power cut must not bring them back behind what is appended from now on.
            self.disk.fsync_directory(self.directory)
        del segments[index:]


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Return the offsets in the names of files with a suffix, ascending."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())
