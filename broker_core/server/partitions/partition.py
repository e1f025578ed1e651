"""One partition on this broker: its log, and the requests that wait for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Protocol

from broker_core.environment import FileSlice
from broker_core.errors import (
    FencedLeaderEpoch,
    InvalidTxnState,
    UnknownLeaderEpoch,
)
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.log import AppendResult, Log
from broker_core.ordered_set import OrderedSet
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import EndMarker
from broker_core.protocol.produced_batches import transactional_producer


class AppendWaiter(Protocol):
    """A request that waits until its records are durable."""

    def durable(self) -> None:
        """Take note that the records are durable."""

    def failed(self, code: int) -> None:
        """Take note that the records will not become durable; `code` is the error."""


class FetchWaiter(Protocol):
    """A request that waits for more records to read."""

    def grew(self, size: int) -> None:
        """Take note that `size` more bytes can be read."""

    def gone(self) -> None:
        """Take note that the partition was deleted, or is led by another broker."""


class Verification:
    """A pending question to a transaction coordinator: is the transaction ongoing (KIP-890)?

    The coordinator's answer is true at the moment at which it is sent. If the transaction's marker
    reaches the log before the answer arrives, the records in question must not be appended after
    it: no marker would ever end their transaction.
    """

    __slots__ = ("_partition", "is_outdated", "producer_id")

    def __init__(self, partition: Partition, producer_id: int) -> None:
        self._partition = partition
        self.producer_id = producer_id
        self.is_outdated = False

    def end(self, code: int) -> int:
        """Take the coordinator's error code; return it, or InvalidTxnState if it is outdated."""
        self._partition.verification_ended(self)
        return InvalidTxnState.code if self.is_outdated and not code else code


class Partition(ABC):
    """A log with its waiters.

    Consumers see records below `high_watermark`. Where the broker acknowledges after fdatasync,
    that is the end of what has been flushed: a record that a power cut could still take back is
    shown to nobody, so that no offset ever has two values.
    """

    __slots__ = (
        "_appended_bytes",
        "_appends",
        "_verifications",
        "acknowledges_after_flush",
        "bytes_in",
        "bytes_out",
        "deleted",
        "fetches",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "topic",
    )

    def __init__(self, topic: str, index: int, log: Log) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        # Questions to transaction coordinators that are not answered yet, by producer id.
        self._verifications: dict[int, set[Verification]] = {}
        self.leader_epoch = 0
        self.high_watermark = log.log_end_offset
        # The high watermark is moved here, not by the log.
        log.high_watermark_follows_end = False
        self.acknowledges_after_flush = False
        self.deleted = False
        self.fetches: OrderedSet[FetchWaiter] = OrderedSet()
        # Waiters by the log end offset that must be durable, in the order of the log.
        self._appends: deque[tuple[int, AppendWaiter]] = deque()
        # Bytes appended since the high watermark last moved.
        self._appended_bytes = 0
        #: Bytes appended and bytes read since the log was opened.
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    @abstractmethod
    def messages_in(self) -> int:
        """Records appended here, as leader, since the log was opened."""

    @property
    def place(self) -> tuple[str, int]:
        """Topic name and partition number."""
        return self.topic, self.index

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise UnknownLeaderEpoch or FencedLeaderEpoch for another epoch (KIP-320); -1 passes."""
        if epoch > self.leader_epoch:
            raise UnknownLeaderEpoch()
        if 0 <= epoch < self.leader_epoch:
            raise FencedLeaderEpoch()

    @abstractmethod
    def check_is_led(self) -> None:
        """Raise NotLeaderOrFollower if another broker leads."""

    @abstractmethod
    def check_is_readable(self, *, from_follower: bool) -> None:
        """Raise NotLeaderOrFollower if consumers have to read from another broker."""

    @abstractmethod
    def check_offsets_are_known(self) -> None:
        """Raise OffsetNotAvailable while a new leader does not know yet what is committed."""

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written, or will be."""
        if offset >= self.log.log_end_offset:
            return self.leader_epoch
        return self.log.leader_epochs.epoch_at(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the end of a leader epoch; see `LeaderEpochs.end_offset`."""
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        if epoch > self.leader_epoch:
            return -1, -1
        return log.leader_epochs.end_offset(epoch, log.log_end_offset)

    @abstractmethod
    def check_in_sync(self) -> None:
        """Raise an error if an append could not be committed now.

        NotLeaderOrFollower if another broker leads, NotEnoughReplicas if too few are in sync.
        """

    @property
    @abstractmethod
    def waits_for_others(self) -> bool:
        """Return whether an append must reach other brokers before it is committed."""

    def append(
        self,
        records: bytearray | memoryview,
        now_ms: int,
        *,
        verified: bool = True,
        headers: list[BatchHeader] | None = None,
    ) -> AppendResult:
        """Append batches; raises BrokerError for a mistake of the producer or a failing disk.

        They can be read after `advance`. `verified` and `headers`: see `Log.append`.
        """
        result = self.log.append(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            verified=verified,
            headers=headers,
        )
        self._appended_bytes += len(records)
        return result

    def append_from_coordinator(
        self, records: bytearray, now_ms: int, marker: EndMarker | None = None
    ) -> AppendResult:
        """Append records of the broker's own; see `Log.append_from_coordinator`."""
        result = self.log.append_from_coordinator(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, marker=marker
        )
        self._appended_bytes += len(records)
        if marker is not None and (producer := transactional_producer(records)) is not None:
            self._outdate(producer[0])
        return result

    def verification(self, producer_id: int) -> Verification:
        """Begin a question about a producer's transaction to its coordinator."""
        verification = Verification(self, producer_id)
        self._verifications.setdefault(producer_id, set()).add(verification)
        return verification

    def verification_ended(self, verification: Verification) -> None:
        """Forget a question; called by `Verification.end`."""
        others = self._verifications.get(verification.producer_id)
        if others is not None:
            others.discard(verification)
            if not others:
                del self._verifications[verification.producer_id]

    def _outdate(self, producer_id: int) -> None:
        for verification in self._verifications.pop(producer_id, ()):
            verification.is_outdated = True

    @abstractmethod
    def wait_durable(self, waiter: AppendWaiter, end_offset: int) -> None:
        """Tell the waiter when everything before `end_offset` is committed."""

    @abstractmethod
    def advance(self) -> None:
        """Move the high watermark, and tell the requests that waited for that."""

    def fail(self, code: int) -> None:
        """Fail the waiting appends with `code`, and outdate all pending verifications.

        Transaction markers may be written on another broker from now on.
        """
        for producer_id in tuple(self._verifications):
            self._outdate(producer_id)
        appends, self._appends = self._appends, deque()
        for _, waiter in appends:
            waiter.failed(code)

    def mark_deleted(self, code: int) -> None:
        """Tell all waiting requests that the partition is gone."""
        self.deleted = True
        self.fail(code)
        for fetch in tuple(self.fetches):
            fetch.gone()

    def read(self, offset: int, max_bytes: int, *, min_one_message: bool) -> bytes:
        """Return whole batches from `offset` up to the high watermark; raises OffsetOutOfRange."""
        if offset == self.high_watermark:
            return b""
        data = self.log.read(
            offset, max_bytes, min_one_message=min_one_message, up_to_offset=self.high_watermark
        )
        self.bytes_out += len(data)
        return data

    def read_committed(
        self, offset: int, max_bytes: int, *, min_one_message: bool
    ) -> tuple[bytes, list[AbortedTransaction]]:
        """As `read`, up to the last stable offset; also return aborted transactions."""
        data, aborted = self.log.read_committed(offset, max_bytes, min_one_message=min_one_message)
        self.bytes_out += len(data)
        return data, aborted

    def slice(
        self, offset: int, max_bytes: int, up_to_offset: int
    ) -> tuple[FileSlice, list[AbortedTransaction]] | None:
        """As `read_committed` up to an offset, but as a range of a file; see `Log.slice`."""
        sliced = self.log.slice(offset, max_bytes, up_to_offset)
        if sliced is not None:
            self.bytes_out += len(sliced[0])
        return sliced
