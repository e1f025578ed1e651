"""The state a log keeps of producers, for idempotence (KIP-98, KIP-360) and open transactions.

For every producer id: its epoch, its last five batches (as many as a producer may have in flight),
and where its open transaction begins. A repeated batch is written once; an open transaction holds
back the last stable offset. The state is derived from the log: recovery rebuilds it from batch
headers. Snapshots, taken when a segment is rolled or the log is closed, shorten that.
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
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import EndMarker
from broker_core.protocol.crc32c import crc32c

logger = logging.getLogger(__name__)

SUFFIX: Final = ".snapshot"
BATCHES_KEPT: Final = 5
PRODUCERS_MAX: Final = 100_000  # per log; those silent for longest are forgotten first
_SEQUENCE_MASK: Final = 2**31 - 1

_MAGIC: Final = b"WLPS0002"
_HEADER: Final = struct.Struct(">8sII")  # magic, CRC-32C of the rest, number of producers
# Id, epoch, last seen (ms), coordinator epoch, start of the open transaction, number of batches.
_PRODUCER: Final = struct.Struct(">qhqiqB")
_BATCH: Final = struct.Struct(">iiqq")  # first and last sequence, first and last offset


class WrittenBatch(NamedTuple):
    """The sequence numbers and offsets of a producer's batch in the log."""

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
    """The log's data about one producer id."""

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
        self.transaction_first_offset = -1  # of the open transaction, -1 if none


class ProducerState:
    """The state of all producers of one log."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers: dict[int, Producer] = {}
        self._producers_max = producers_max
        # First offsets of open transactions by producer id. They are added in log order, so the
        # oldest is always the first.
        self._open: dict[int, int] = {}
        # Decided, but the marker may not be committed yet: (first offset, offset of the marker).
        self._ended: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """Return what is known of a producer id, None if nothing."""
        return self._producers.get(producer_id)

    def producers(self) -> list[Producer]:
        """Return all known producers, for DescribeProducers."""
        return list(self._producers.values())

    def is_in_transaction(self, producer_id: int) -> bool:
        """Tell whether a transaction of the producer is open in this log."""
        return producer_id in self._open

    def first_open_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction, None if there is none."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction without a committed marker, or None.

        A transaction counts if it is open or if its marker is at or beyond the high watermark. The
        high watermark must never go back.
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
        """The number of decided transactions whose marker may not be committed yet."""
        return len(self._ended)

    def forget_ended(self, high_watermark: int) -> None:
        """Forget transactions whose marker is below the high watermark; they hold nothing back."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def check(self, headers: list[BatchHeader], *, verified: bool = True) -> WrittenBatch | None:
        """Decide whether batches from a producer are to be appended.

        Returns None if they are to be written, or a WrittenBatch with their offsets if they are in
        the log already. `verified` says that the transaction coordinator knows this partition as
        part of the transaction. Raises InvalidProducerEpoch, OutOfOrderSequenceNumber,
        InvalidTxnState, and DuplicateSequenceNumber if only some of the batches are in the log.
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
        """Check the epochs of batches from a coordinator, which have no sequence numbers.

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
        """Check epoch and sequence; `before` is the producer's previous batch in this append."""
        sequence = header.base_sequence
        if before is not None:
            epoch, last_sequence = before.producer_epoch, before.last_sequence
        else:
            producer = self._producers.get(header.producer_id)
            # Retention may have deleted the records of an unknown producer: any sequence is
            # accepted from it, as in Kafka since KIP-360.
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
            # A marker with a new epoch clears the batches: nothing was written in it yet.
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
        """Record a batch that is in the log; call it in log order."""
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
        """Record a marker that is in the log; return None if it ended no transaction here."""
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
        # A tenth at a time: if each new id sorted them all, a client could keep the broker busy.
        for producer in by_age[: max(1, len(by_age) // 10)]:
            del self._producers[producer.producer_id]
        logger.warning("more than %d producer ids: the oldest are forgotten", self._producers_max)

    def expire(self, silent_since_ms: int) -> int:
        """Forget producers last seen at or before `silent_since_ms`; return how many."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.last_seen_ms <= silent_since_ms and producer.transaction_first_offset < 0
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def to_bytes(self) -> bytes:
        """Return the content of a snapshot file."""
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
        """Parse a snapshot file's content; return None if it is damaged."""
        if len(data) < _HEADER.size:
            return None
        magic, crc, count = _HEADER.unpack_from(data)
        if magic != _MAGIC or crc != crc32c(data[_HEADER.size :]):
            return None
        try:
            state, size = cls._parse(data, count)
        except struct.error:
            return None
        # The checksum does not cover the count.
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
    """Return the path of the snapshot of the state just before `offset`."""
    return directory / f"{offset:020d}{SUFFIX}"


def load_snapshot(
    disk: Disk, directory: Path, offsets: Iterable[int], up_to_offset: int
) -> tuple[int, ProducerState] | None:
    """Load the newest undamaged snapshot among `offsets` that is not after `up_to_offset`."""
    damaged = []
    found = None
    for offset in sorted(offsets, reverse=True):
        if offset <= up_to_offset:
            state = ProducerState.from_bytes(disk.read(snapshot_path(directory, offset)))
            if state is not None:
                found = offset, state
                break
            damaged.append(offset)
    if damaged:
        logger.warning(
            "%s is damaged%s; the state of producers is read from the log",
            snapshot_path(directory, damaged[0]),
            f", and {len(damaged) - 1} older ones" if len(damaged) > 1 else "",
        )
    return found
