"""Reading from a log's segments, and which closed segments stay open."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from broker_core.environment import FileSlice
from broker_core.errors import BrokerError, CorruptMessage, KafkaStorageError
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.segment import Segment
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.record_reader import RecordReader
from broker_core.protocol.stored_batches import scan_batches

logger = logging.getLogger(__name__)

_CLOSED_SEGMENTS_OPEN_MAX: Final = 4  # per log; so many lagging readers read at full speed
_READ_POSITIONS_MAX: Final = 64  # per log; so many readers continue without an index lookup
_base_offset: Final = attrgetter("base_offset")
_first_offset: Final = attrgetter("first_offset")


class Unreadable(NamedTuple):
    """Offsets that cannot be read, and why."""

    offset: int
    end_offset: int
    problem: str  # with file and byte


class SoundRead(NamedTuple):
    """Batches that have been checked."""

    data: bytes
    headers: list[BatchHeader]  # of the sound batches in the data
    next_offset: int  # where to go on; the log's end if there is nothing more
    damage: Unreadable | None  # what lies between these batches and `next_offset`


class SegmentReader:
    """Reads the segments of one log.

    Most reads continue where an earlier one ended. The reader remembers that position, so such a
    read needs no index lookup. `pinned` returns the segments that must stay open because they are
    written or not yet synced.
    """

    def __init__(self, pinned: Callable[[], Collection[Segment]]) -> None:
        self._pinned = pinned
        self._lock = threading.Lock()
        self._open: OrderedDict[Segment, None] = OrderedDict()  # closed segments, last used last
        self._damaged: set[str] = set()  # places that have been reported
        self._positions: OrderedDict[int, tuple[Segment, int]] = OrderedDict()  # by next offset

    def read(
        self,
        segments: Sequence[Segment],
        offset: int,
        max_bytes: int,
        up_to_offset: int,
        min_one_message: bool,
    ) -> bytes:
        """Read whole batches of one segment; `Log.read` has checked the offset."""
        try:
            found = self._find(segments, offset)
            if found is None:
                return b""
            segment, position = found
            data, next_offset = segment.read_at(position, max_bytes, up_to_offset, min_one_message)
        except CorruptMessage as error:
            self._report(error)
            raise
        self._has_read(segments, segment, position + len(data), next_offset if data else -1)
        return data

    def read_sound(
        self, segments: Sequence[Segment], offset: int, max_bytes: int, end_offset: int
    ) -> SoundRead:
        """See `SegmentedLog.read_sound`."""
        data, headers = b"", []
        try:
            found = self._find(segments, offset)
            if found is None:
                return SoundRead(b"", [], end_offset, None)
            segment, position = found
            data, _ = segment.read_at(position, max_bytes, end_offset, min_one_message=True)
            scanned, _, problem = scan_batches(data)
            for header in scanned:
                if not offset < header.next_offset <= end_offset:
                    problem = f"offset {header.base_offset} is out of order"
                    break
                headers.append(header)
                offset = header.next_offset
            if not data:
                problem = "the batch there ends behind the log's end"
            if problem is None:
                self._has_read(segments, segment, position + len(data), offset)
                return SoundRead(data, headers, offset, None)
            at = position + sum(header.size for header in headers)
            text = f"{segment.path}, byte {at}: {problem}"
        except CorruptMessage as error:
            text = str(error)
        behind = end_offset
        for segment in segments:
            if segment.next_offset > offset and (sound := segment.locate_sound(offset)) is not None:
                behind, at = sound
                # Looking for the offset would come to the damage again.
                self._has_read(segments, segment, at, behind)
                break
        return SoundRead(data, headers, behind, Unreadable(offset, behind, text))

    def slice(
        self, segments: Sequence[Segment], offset: int, max_bytes: int, up_to_offset: int
    ) -> tuple[FileSlice, int] | None:
        """Return the file slice that `read` would read, and the offset after it.

        None if that is not worth it, see `Segment.slice_at`.
        """
        try:
            found = self._find(segments, offset)
        except CorruptMessage as error:
            self._report(error)
            raise
        if found is None:
            return None
        segment, position = found
        sliced = segment.slice_at(position, max_bytes, up_to_offset)
        if sliced is not None:
            data, next_offset = sliced
            self._has_read(segments, segment, position + len(data), next_offset)
        return sliced

    def gap_at(self, segments: Sequence[Segment], offset: int) -> int:
        """Return the end of the offsets from here on that no segment has; `offset` if it has one.

        The last segment begins there, and is empty; what is before another one is passed over by
        `read`. Raises KafkaStorageError, CorruptMessage.
        """
        end = segments[-1].base_offset
        if segments[-1].size or offset >= end:
            return offset
        try:
            return offset if _locate(segments, offset) else end
        except CorruptMessage as error:
            self._report(error)
            raise

    def _report(self, error: CorruptMessage) -> None:
        """Log damage the first time that a reader comes to it: clients ask again and again."""
        place = str(error)
        if place not in self._damaged:
            self._damaged.add(place)
            logger.error(
                "%s: damaged, what lies there cannot be read; `waylog log verify` finds all",
                place,
            )

    def _find(self, segments: Sequence[Segment], offset: int) -> tuple[Segment, int] | None:
        known = self._positions.get(offset)
        if known is not None and known[1] < known[0].size:
            return known
        return _locate(segments, offset)

    def _has_read(
        self, segments: Sequence[Segment], segment: Segment, position: int, next_offset: int
    ) -> None:
        with self._lock:
            self._use(segment, segment is segments[-1])
            if next_offset >= 0 and not segment.is_retired:
                self._positions[next_offset] = segment, position
                if len(self._positions) > _READ_POSITIONS_MAX:
                    self._positions.popitem(last=False)

    def first_at_timestamp(
        self, segments: Sequence[Segment], timestamp_ms: int, start: int, end: int
    ) -> Generator[int, None, tuple[int, int] | None]:
        """Return (timestamp, offset) of the first record at or after a time, from start to end.

        Yields the size of each batch that was opened in vain.
        """
        for segment in segments:
            if segment.next_offset <= start or segment.max_timestamp < timestamp_ms:
                continue
            found = yield from _first_in(segment, timestamp_ms, start, end)
            self.use(segment)
            if found is not None:
                return found
        return None

    def use(self, segment: Segment) -> None:
        """Record that a segment was read; close the one that has not been read for longest."""
        with self._lock:
            self._use(segment, segment in self._pinned())

    def _use(self, segment: Segment, pinned: bool) -> None:
        if pinned or segment.is_retired:
            return
        self._open[segment] = None
        self._open.move_to_end(segment)
        while len(self._open) > _CLOSED_SEGMENTS_OPEN_MAX:
            oldest, _ = self._open.popitem(last=False)
            if oldest not in self._pinned():
                oldest.release()

    def forget(self, segment: Segment) -> None:
        """Forget a segment that leaves the log; its file is not closed."""
        with self._lock:
            segment.is_retired = True
            self._open.pop(segment, None)
            self._forget_positions(segment)

    def forget_positions(self, segment: Segment) -> None:
        """Forget positions in a segment that is about to be cut: they become invalid."""
        with self._lock:
            self._open.pop(segment, None)  # it becomes the active segment
            self._forget_positions(segment)

    def _forget_positions(self, segment: Segment) -> None:
        for offset in [at for at, place in self._positions.items() if place[0] is segment]:
            del self._positions[offset]


def _locate(segments: Sequence[Segment], offset: int) -> tuple[Segment, int] | None:
    """Return the segment and the position of the first batch that reaches an offset."""
    first = bisect_right(segments, offset, key=_base_offset) - 1
    for segment in segments[max(first, 0) :]:
        located = segment.locate(offset)
        if located is not None:
            return segment, located[0]
    return None


def _first_in(
    segment: Segment, timestamp_ms: int, from_offset: int, up_to_offset: int
) -> Generator[int, None, tuple[int, int] | None]:
    """Return (timestamp, offset) of a segment's first record at or after a time, within offsets.

    Yields the size of each batch that was opened in vain: the times in headers may be wrong.
    """
    from_offset = max(from_offset, segment.indexes.first_offset_at(timestamp_ms))
    found = segment.locate(from_offset, timestamp_ms)
    while found is not None:
        position, size = found
        data = segment.handle().file.pread(size, position)
        headers, _, problem = scan_batches(data)
        if problem is not None:
            raise KafkaStorageError(f"{segment.path}, byte {position}: {problem}")
        header = headers[0]
        if header.base_offset >= up_to_offset:
            return None
        record = _first_record(data, header, timestamp_ms, from_offset)
        if record is not None:
            return record if record[1] < up_to_offset else None
        yield size
        from_offset = header.next_offset
        found = segment.locate(from_offset, timestamp_ms)
    return None


def _first_record(
    data: bytes, header: BatchHeader, timestamp_ms: int, from_offset: int
) -> tuple[int, int] | None:
    if header.is_log_append_time:
        return header.max_timestamp, max(header.base_offset, from_offset)
    try:
        return RecordReader(data, header).first_at(timestamp_ms, from_offset)
    except BrokerError as error:
        # Compressed batches are stored without being decompressed; the header is readable anyway.
        logger.warning("batch at offset %d cannot be opened: %s", header.base_offset, error)
        return header.max_timestamp, header.base_offset


def aborted_between(
    segments: Sequence[Segment], offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions between an offset and an end offset, by first offset.

    Raises KafkaStorageError.
    """
    found: list[AbortedTransaction] = []
    for segment in segments:
        if segment.next_offset <= offset:
            continue
        aborted = segment.indexes.aborted_transactions()
        found += [
            each
            for each in aborted
            if each.last_offset >= offset and each.first_offset < end_offset
        ]
        if aborted and aborted[-1].last_stable_offset >= end_offset:
            break
    return sorted(found, key=_first_offset)
