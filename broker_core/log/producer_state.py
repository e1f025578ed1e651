"""What a log remembers of idempotent producers, so that a retry is written once (KIP-98, KIP-360).

Of every producer id: its epoch and its last five batches, as many as a producer may have in flight.
The state is a function of the log: recovery builds it again by reading batch headers, and snapshots
taken when a segment is rolled or the log is closed only shorten that.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.environment import Disk
from broker_core.errors import (
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
)
from broker_core.protocol.records import BatchHeader, crc32c

logger = logging.getLogger(__name__)

SUFFIX: Final = ".snapshot"
BATCHES_KEPT: Final = 5
PRODUCERS_MAX: Final = 100_000  # a log; the longest silent are forgotten first
_SEQUENCE_MASK: Final = 2**31 - 1

_MAGIC: Final = b"WLPS0001"
_HEADER: Final = struct.Struct(">8sII")  # magic, CRC-32C of what follows, number of producers
_PRODUCER: Final = struct.Struct(">qhqB")  # id, epoch, last seen, number of batches
_BATCH: Final = struct.Struct(">iiqq")  # first and last sequence, first and last offset


class WrittenBatch(NamedTuple):
    """Where a producer's batch stands in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Producer:
    """One producer id as the log has seen it."""

    __slots__ = ("batches", "epoch", "last_seen_ms", "producer_id")

    def __init__(self, producer_id: int, epoch: int, last_seen_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_seen_ms = last_seen_ms  # broker's clock; record timestamps can be years old
        self.batches: list[WrittenBatch] = []  # of this epoch, oldest first, at most BATCHES_KEPT


class ProducerState:
    """The producers of one log."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers: dict[int, Producer] = {}
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer id."""
        return self._producers.get(producer_id)

    def producers(self) -> list[Producer]:
        """All known producers, for DescribeProducers."""
        return list(self._producers.values())

    def check(self, headers: list[BatchHeader]) -> WrittenBatch | None:
        """Decide about batches that a producer wants to append.

        None means "write them"; a WrittenBatch that they are in the log already, at these offsets.
        Raises InvalidProducerEpoch, OutOfOrderSequenceNumber, and DuplicateSequenceNumber where
        some of them are in the log and some are not.
        """
        first = headers[0]
        if len(headers) == 1:
            return self._check(first, None) if first.producer_id >= 0 else None
        duplicates: list[WrittenBatch] = []
        previous: dict[int, BatchHeader] = {}
        for header in headers:
            if header.producer_id < 0:
                continue
            duplicate = self._check(header, previous.get(header.producer_id))
            if duplicate is None:
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
            epoch, last_sequence = producer.epoch, producer.batches[-1].last_sequence
        if header.producer_epoch < epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
                f"the log has seen {epoch}"
            )
        expected = 0 if header.producer_epoch > epoch else (last_sequence + 1) & _SEQUENCE_MASK
        if sequence != expected:
            raise OutOfOrderSequenceNumber(
                f"producer {header.producer_id} sent sequence {sequence} of epoch "
                f"{header.producer_epoch} where {expected} is next"
            )
        return None

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch that stands in the log; batches come in the log's order."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if header.producer_id < 0 or header.base_sequence < 0:
                return
            if len(self._producers) >= self._producers_max:
                self._forget_silent()
            producer = Producer(header.producer_id, header.producer_epoch, now_ms)
            self._producers[header.producer_id] = producer
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        elif len(producer.batches) >= BATCHES_KEPT:
            del producer.batches[0]
        producer.last_seen_ms = now_ms
        producer.batches.append(
            WrittenBatch(
                header.base_sequence, header.last_sequence, header.base_offset, header.last_offset
            )
        )

    def _forget_silent(self) -> None:
        by_age = sorted(self._producers.values(), key=attrgetter("last_seen_ms"))
        # A tenth at a time: sorting for every newcomer would be a way to keep the broker busy.
        for producer in by_age[: max(1, len(by_age) // 10)]:
            del self._producers[producer.producer_id]
        logger.warning("more than %d producer ids: the oldest are forgotten", self._producers_max)

    def expire(self, silent_since_ms: int) -> int:
        """Forget producers not seen after a moment; returns how many."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.last_seen_ms <= silent_since_ms
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
        state = cls()
        position = _HEADER.size
        for _ in range(count):
            producer_id, epoch, last_seen_ms, batches = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            producer = Producer(producer_id, epoch, last_seen_ms)
            for _ in range(batches):
                producer.batches.append(WrittenBatch(*_BATCH.unpack_from(data, position)))
                position += _BATCH.size
            state._producers[producer_id] = producer
        return state


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
