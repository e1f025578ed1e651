"""What a log remembers of producers: a retry is written once (KIP-98, KIP-360), and a transaction
that is not decided yet holds back the last stable offset.

Of every producer id: its epoch, its last five batches, as many as a producer may have in flight,
and where its open transaction begins. The state is a function of the log: recovery builds it again
by reading batch headers, and snapshots taken when a segment is rolled or the log is closed only
shorten that.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.environment import Disk
from broker_core.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from broker_core.protocol.control_records import EndMarker
from broker_core.protocol.records import BatchHeader, crc32c

logger = logging.getLogger(__name__)

SUFFIX: Final = ".snapshot"
BATCHES_KEPT: Final = 5
PRODUCERS_MAX: Final = 100_000  # a log; the longest silent are forgotten first
_SEQUENCE_MASK: Final = 2**31 - 1

_MAGIC: Final = b"WLPS0002"
_HEADER: Final = struct.Struct(">8sII")  # magic, CRC-32C of what follows, number of producers
# Id, epoch, last seen, coordinator's epoch, begin of the open transaction, number of batches.
_PRODUCER: Final = struct.Struct(">qhqiqB")
_BATCH: Final = struct.Struct(">iiqq")  # first and last sequence, first and last offset


class WrittenBatch(NamedTuple):
    """Where a producer's batch stands in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class EndedTransaction(NamedTuple):
    """A transaction in this log whose marker has been written."""

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    committed: bool


class Producer:
    """One producer id as the log has seen it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int, last_seen_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_seen_ms = last_seen_ms  # broker's clock; record timestamps can be years old
        self.batches: list[WrittenBatch] = []  # of this epoch, oldest first, at most BATCHES_KEPT
        self.coordinator_epoch = -1  # of the coordinator that wrote the newest marker
        self.transaction_first_offset = -1  # of the open transaction, -1 where there is none


class ProducerState:
    """The producers of one log."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers: dict[int, Producer] = {}
        self._producers_max = producers_max
        # First offsets of open transactions by producer id. They begin in the log's order, so that
        # the oldest is always the first.
        self._open: dict[int, int] = {}
        # Decided, but the marker may not be committed yet: (first offset, marker's offset).
        self._ended: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer id."""
        return self._producers.get(producer_id)

    def producers(self) -> list[Producer]:
        """All known producers, for DescribeProducers."""
        return list(self._producers.values())

    def is_in_transaction(self, producer_id: int) -> bool:
        """Tell whether a transaction of the producer is open in this log."""
        return producer_id in self._open

    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction begins that is open, or decided beyond the high watermark.

        The high watermark never goes back.
        """
        ended = self._ended
        if not ended:
            return self.first_open_offset() if self._open else None
        self.forget_ended(high_watermark)
        first_open = self.first_open_offset()
        if not ended:
            return first_open
        firsts = [first for first, _ in ended]
        return min(firsts if first_open is None else [*firsts, first_open])

    @property
    def ended(self) -> int:
        """How many transactions are kept whose marker may not be committed yet."""
        return len(self._ended)

    def forget_ended(self, high_watermark: int) -> None:
        """Markers before the high watermark hold nothing back any more."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def check(self, headers: list[BatchHeader], *, verified: bool = True) -> WrittenBatch | None:
        """Decide about batches that a producer wants to append.

        None means "write them"; a WrittenBatch that they are in the log already, at these offsets.
        `verified` says that the transaction coordinator knows this partition as one of the
        transaction's. Raises InvalidProducerEpoch, OutOfOrderSequenceNumber, InvalidTxnState, and
        DuplicateSequenceNumber where some of them are in the log and some are not.
        """
        first = headers[0]
        if len(headers) == 1:
            if first.producer_id < 0:
                return None
            duplicate = self._check(first, None)
            if duplicate is None:
                self._check_transaction(first, verified)
            return duplicate
        duplicates: list[WrittenBatch] = []
        previous: dict[int, BatchHeader] = {}
        for header in headers:
            if header.producer_id < 0:
                continue
            duplicate = self._check(header, previous.get(header.producer_id))
            if duplicate is None:
                self._check_transaction(header, verified)
                previous[header.producer_id] = header
            else:
                duplicates.append(duplicate)
        if not duplicates:
            return None
        if len(duplicates) < len(headers):
            raise DuplicateSequenceNumber("some of the batches are in the log already")
        return WrittenBatch(
            duplicates[0].base_sequence,
            duplicates[-1].last_sequence,
            duplicates[0].base_offset,
            duplicates[-1].last_offset,
        )

    def check_epoch(self, headers: list[BatchHeader], marker: EndMarker | None = None) -> None:
        """Decide about what a coordinator wants to append: there are no sequences.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced.
        """
        for header in headers:
            producer = self._producers.get(header.producer_id)
            if producer is None:
                continue
            self._check_epoch(header, producer.epoch)
            if marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
                raise TransactionCoordinatorFenced(
                    f"the marker for producer {header.producer_id} is of coordinator epoch "
                    f"{marker.coordinator_epoch}, the log has seen {producer.coordinator_epoch}"
                )

    def _check_transaction(self, header: BatchHeader, verified: bool) -> None:
        is_open = header.producer_id in self._open
        if header.is_transactional:
            if not is_open and not verified:
                raise InvalidTxnState("Record was not part of an ongoing transaction")
        elif is_open:
            raise InvalidTxnState(
                f"producer {header.producer_id} wrote outside of its open transaction"
            )

    def _check_epoch(self, header: BatchHeader, epoch: int) -> None:
        if header.producer_epoch < epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
                f"the log has seen {epoch}"
            )

    def _check(self, header: BatchHeader, before: BatchHeader | None) -> WrittenBatch | None:
        """`before` is the producer's previous batch in the same append."""
        sequence = header.base_sequence
        if before is not None:
            epoch, last_sequence = before.producer_epoch, before.last_sequence
        else:
            producer = self._producers.get(header.producer_id)
            # A producer that is not known can be one whose records retention has deleted: any
            # sequence is right for it, as in Kafka since KIP-360.
            if producer is None:
                return None
            for batch in producer.batches:
                if (
                    batch.base_sequence == sequence
                    and batch.last_sequence == header.last_sequence
                    and producer.epoch == header.producer_epoch
                ):
                    return batch
            epoch = producer.epoch
            # After a marker with a new epoch nothing has been written in that epoch.
            last_sequence = producer.batches[-1].last_sequence if producer.batches else -1
        self._check_epoch(header, epoch)
        expected = 0 if header.producer_epoch > epoch else (last_sequence + 1) & _SEQUENCE_MASK
        if sequence != expected:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} sent sequence {sequence} of epoch "
                f"{header.producer_epoch} where {expected} is next"
            )
        return None

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch that stands in the log; batches come in the log's order."""
        if header.producer_id < 0 or (header.base_sequence < 0 and not header.is_transactional):
            return
        producer = self._seen(header, now_ms)
        if header.base_sequence >= 0:
            if len(producer.batches) >= BATCHES_KEPT:
                del producer.batches[0]
            producer.batches.append(
                WrittenBatch(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                )
            )
        if header.is_transactional and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = header.base_offset
            self._open[header.producer_id] = header.base_offset

    def end_transaction(
        self, header: BatchHeader, marker: EndMarker, now_ms: int
    ) -> EndedTransaction | None:
        """Remember a marker that stands in the log; None where it ended nothing here."""
        producer = self._seen(header, now_ms)
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        first_offset, producer.transaction_first_offset = producer.transaction_first_offset, -1
        if first_offset < 0:
            return None
        del self._open[header.producer_id]
        self._ended.append((first_offset, header.last_offset))
        return EndedTransaction(
            header.producer_id, first_offset, header.last_offset, marker.committed
        )

    def _seen(self, header: BatchHeader, now_ms: int) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if len(self._producers) >= self._producers_max:
                self._forget_silent()
            producer = Producer(header.producer_id, header.producer_epoch, now_ms)
            self._producers[header.producer_id] = producer
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_seen_ms = now_ms
        return producer

    def _forget_silent(self) -> None:
        idle = [each for each in self._producers.values() if each.transaction_first_offset < 0]
        by_age = sorted(idle, key=attrgetter("last_seen_ms"))
        # A tenth at a time: sorting for every newcomer would be a way to keep the broker busy.
        for producer in by_age[: max(1, len(by_age) // 10)]:
            del self._producers[producer.producer_id]
        logger.warning("more than %d producer ids: the oldest are forgotten", self._producers_max)

    def expire(self, silent_since_ms: int) -> int:
        """Forget producers not seen after a moment; returns how many."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.last_seen_ms <= silent_since_ms and producer.transaction_first_offset < 0
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def to_bytes(self) -> bytes:
        """A snapshot file's content."""
        parts: list[bytes] = []
        for producer in self._producers.values():
            parts.append(
                _PRODUCER.pack(
                    producer.producer_id,
                    producer.epoch,
                    producer.last_seen_ms,
                    producer.coordinator_epoch,
                    producer.transaction_first_offset,
                    len(producer.batches),
                )
            )
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        body = b"".join(parts)
        return _HEADER.pack(_MAGIC, crc32c(body), len(self._producers)) + body

    @classmethod
    def from_bytes(cls, data: bytes) -> ProducerState | None:
        """Read a snapshot file's content; None if it is damaged."""
        if len(data) < _HEADER.size:
            return None
        magic, crc, count = _HEADER.unpack_from(data)
        if magic != _MAGIC or crc != crc32c(data[_HEADER.size :]):
            return None
        try:
            state, size = cls._parse(data, count)
        except struct.error:
            return None
        # The checksum does not speak for the count.
        return state if size == len(data) else None

    @classmethod
    def _parse(cls, data: bytes, count: int) -> tuple[ProducerState, int]:
        state = cls()
        position = _HEADER.size
        for _ in range(count):
            (
                producer_id,
                epoch,
                last_seen_ms,
                coordinator_epoch,
                transaction_first_offset,
                batches,
            ) = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            producer = Producer(producer_id, epoch, last_seen_ms)
            producer.coordinator_epoch = coordinator_epoch
            producer.transaction_first_offset = transaction_first_offset
            for _ in range(batches):
                producer.batches.append(WrittenBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            state._producers[producer_id] = producer
        first_offsets = [
            (each.transaction_first_offset, each.producer_id)
            for each in state._producers.values()
            if each.transaction_first_offset >= 0
        ]
        state._open = {producer_id: first for first, producer_id in sorted(first_offsets)}
        return state, position


def snapshot_path(directory: Path, offset: int) -> Path:
    """The snapshot of the state just before `offset`."""
    return directory / f"{offset:020d}{SUFFIX}"


def load_snapshot(
    disk: Disk, directory: Path, offsets: Iterable[int], up_to_offset: int
) -> tuple[int, ProducerState] | None:
    """The newest sound snapshot of those at `offsets`, not after `up_to_offset`."""
    for offset in sorted(offsets, reverse=True):
        if offset <= up_to_offset:
            state = ProducerState.from_bytes(disk.read(snapshot_path(directory, offset)))
            if state is not None:
                return offset, state
            logger.warning("%s is damaged", snapshot_path(directory, offset))
    return None
