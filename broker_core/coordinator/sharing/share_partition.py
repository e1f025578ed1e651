"""The delivery state of one partition in a share group (KIP-932).

Members acquire records under a lock with a time limit, and accept, release or reject them. Released
records are delivered again, up to a maximum number of deliveries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from broker_core.errors import InvalidRecordState, InvalidRequest


class DeliveryState(IntEnum):
    """Delivery states, with the numbers of Kafka's records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """The types of acknowledgement of a record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


DONE: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
_ANSWERS: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


#: Most offsets from the first record in flight to the last one: 10,000 records
#: (share.partition.max.record.locks), and the gaps between them.
_SPAN_MAX: Final = 1_000_000


class SharePartitionSettings(NamedTuple):
    """The broker's `group.share.*` properties for records."""

    lock_ms: int = 30_000
    deliveries_max: int = 5
    #: Records that may be in flight: acquired, or done before others that are not.
    in_flight_max: int = 2_000


class StateBatch(NamedTuple):
    """Consecutive records with the same state."""

    first_offset: int
    last_offset: int
    state: DeliveryState
    delivery_count: int


class AcquiredRecords(NamedTuple):
    """Consecutive records that a member has acquired."""

    first_offset: int
    last_offset: int
    delivery_count: int


class LogBatch(NamedTuple):
    """Offsets that were read; those that are not `is_visible` are skipped.

    That is a batch of records, or offsets that the log does not have: compaction has taken them,
    or they are lost.
    """

    first_offset: int
    last_offset: int
    is_visible: bool


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of consecutive records: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


@dataclass(slots=True)
class _Record:
    state: DeliveryState
    delivery_count: int = 0
    member_id: str = ""
    lock_ends_ms: int = 0


class SharePartition:
    """One partition in one share group. Times are monotonic ms.

    Invariant: start_offset <= every offset in flight < end_offset; there is a record at
    start_offset which is not done, or none is in flight. Offsets in between that members never get
    have no record.
    """

    def __init__(
        self,
        start_offset: int,
        settings: SharePartitionSettings,
        batches: Iterable[StateBatch] = (),
    ) -> None:
        #: All records before it are done.
        self.start_offset = start_offset
        #: No record from it on has been delivered.
        self.end_offset = start_offset
        self.settings = settings
        self._records: dict[int, _Record] = {}  # by offset, in this order
        # (end, first, last) by end; an entry whose records have been acknowledged is skipped.
        self._locks: deque[tuple[int, int, int]] = deque()
        for batch in batches:
            for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
                # Records between the stored batches were acquired, their state is unknown, or the
                # log does not have them, which the next read will tell.
                for missing in range(self.end_offset, offset):
                    self._records[missing] = _Record(DeliveryState.AVAILABLE)
                self._records[offset] = _Record(batch.state, batch.delivery_count)
                self.end_offset = offset + 1
        self._advance()

    @property
    def in_flight(self) -> int:
        """The number of records that are acquired or done, from the start offset on."""
        return len(self._records)

    def next_offset(self) -> int | None:
        """Return the offset to read from next; None while too many records are in flight."""
        for offset, record in self._records.items():
            if record.state is DeliveryState.AVAILABLE:
                return offset
        return self.end_offset if len(self._records) < self.settings.in_flight_max else None

    # ---------------------------------------------------------------------------------- delivery

    def acquire(
        self,
        member_id: str,
        batches: Iterable[LogBatch],
        records_max: int,
        now_ms: int,
        *,
        is_strict: bool = False,
    ) -> list[AcquiredRecords]:
        """Acquire, for a member, the available records of batches that were read, in their order.

        The batches follow one another without a gap, from `next_offset` on or from before it.
        `records_max` does not divide a batch unless `is_strict`.
        """
        ends = now_ms + self.settings.lock_ms
        acquired: list[AcquiredRecords] = []
        count = 0
        for batch in batches:
            if not batch.is_visible:
                self._skip(batch.first_offset, batch.last_offset + 1)
                continue
            run: AcquiredRecords | None = None
            for offset in range(max(batch.first_offset, self.start_offset), batch.last_offset + 1):
                record = self._to_deliver(offset)
                if record is None or (is_strict and count >= records_max):
                    run = None
                    continue
                record.state = DeliveryState.ACQUIRED
                record.delivery_count += 1
                record.member_id = member_id
                record.lock_ends_ms = ends
                count += 1
                if run is not None and run.delivery_count == record.delivery_count:
                    run = acquired[-1] = run._replace(last_offset=offset)
                else:
                    run = AcquiredRecords(offset, offset, record.delivery_count)
                    acquired.append(run)
            if count >= records_max:
                break
        self._locks += ((ends, each.first_offset, each.last_offset) for each in acquired)
        self._advance()
        return acquired

    def _to_deliver(self, offset: int) -> _Record | None:
        record = self._records.get(offset)
        if record is None:
            if (
                offset < self.end_offset
                or len(self._records) >= self.settings.in_flight_max
                or offset >= self.start_offset + _SPAN_MAX
            ):
                return None
            record = self._records[offset] = _Record(DeliveryState.AVAILABLE)
            self.end_offset = offset + 1
        return record if record.state is DeliveryState.AVAILABLE else None

    def _skip(self, first: int, end: int) -> None:
        """Pass over offsets that no member gets. They may be many, so they are not noted singly."""
        if first > self.end_offset:
            return  # there was no room for all records before them
        known = range(first, min(end, self.end_offset))
        for offset in [
            each
            for each in (known if len(known) < len(self._records) else self._records)
            if each in known
            and each in self._records
            and self._records[each].state is DeliveryState.AVAILABLE
        ]:
            del self._records[offset]
        self.end_offset = max(self.end_offset, end)
        self._advance()

    # ------------------------------------------------------------------------------------ answers

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> bool:
        """Apply all acknowledgements of a member or none; return whether records became available.

        Raises InvalidRequest, InvalidRecordState.
        """
        check_acknowledgements(acknowledgements)
        answers: list[tuple[int, _Record, AcknowledgeType]] = []
        for each in acknowledgements:
            for offset in range(max(each.first_offset, self.start_offset), each.last_offset + 1):
                record = self._records.get(offset)
                if (
                    record is None
                    or record.state is not DeliveryState.ACQUIRED
                    or record.member_id != member_id
                ):
                    raise InvalidRecordState(
                        f"The record at offset {offset} is not acquired by {member_id}."
                    )
                at = offset - each.first_offset if len(each.types) > 1 else 0
                answers.append((offset, record, AcknowledgeType(each.types[at])))
        ends = now_ms + self.settings.lock_ms
        is_available = False
        for offset, record, answer in answers:
            if answer is AcknowledgeType.RENEW:
                record.lock_ends_ms = ends
                self._locks.append((ends, offset, offset))
                continue
            record.state = _ANSWERS[answer]
            if answer is AcknowledgeType.RELEASE:
                is_available |= self._give_back(record)
        self._advance()
        return is_available

    def _give_back(self, record: _Record) -> bool:
        record.member_id = ""
        is_over = record.delivery_count >= self.settings.deliveries_max
        record.state = DeliveryState.ARCHIVED if is_over else DeliveryState.AVAILABLE
        return not is_over

    def release(self, member_id: str) -> bool:
        """Release, for a member that is gone, the records that it has not acknowledged.

        Returns whether records became available.
        """
        is_available = False
        for record in self._records.values():
            if record.state is DeliveryState.ACQUIRED and record.member_id == member_id:
                is_available |= self._give_back(record)
        self._advance()
        return is_available

    def next_deadline(self) -> int | None:
        """Return when the next lock may end; None if there are no locks."""
        return self._locks[0][0] if self._locks else None

    def tick(self, now_ms: int) -> bool:
        """End the locks that are due; return whether records became available."""
        is_available = False
        while self._locks and self._locks[0][0] <= now_ms:
            ends, first, last = self._locks.popleft()
            for offset in range(max(first, self.start_offset), last + 1):
                record = self._records.get(offset)
                if (
                    record is not None
                    and record.state is DeliveryState.ACQUIRED
                    and record.lock_ends_ms == ends
                ):
                    is_available |= self._give_back(record)
        self._advance()
        return is_available

    def begin_at(self, offset: int) -> None:
        """Move the start to an offset: the log has deleted the records before it."""
        if offset <= self.start_offset:
            return
        for gone in [each for each in self._records if each < offset]:
            del self._records[gone]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._advance()

    def _advance(self) -> None:
        done: list[int] = []
        start = self.end_offset
        for offset, record in self._records.items():
            if record.state not in DONE:
                start = offset
                break
            done.append(offset)
        for offset in done:
            del self._records[offset]
        self.start_offset = start

    # ------------------------------------------------------------------------------------ storing

    def batches(self) -> list[StateBatch]:
        """Return the state to store; the owners of acquired records are not stored."""
        found: list[StateBatch] = []
        for offset, record in self._records.items():
            state, count = record.state, record.delivery_count
            if state is DeliveryState.ACQUIRED:
                state = DeliveryState.AVAILABLE
                if count >= self.settings.deliveries_max:
                    count -= 1
            if found and found[-1] == (found[-1].first_offset, offset - 1, state, count):
                found[-1] = found[-1]._replace(last_offset=offset)
            else:
                found.append(StateBatch(offset, offset, state, count))
        return found


def check_acknowledgements(acknowledgements: Sequence[Acknowledgement]) -> None:
    """Raise InvalidRequest if the acknowledgements are not valid."""
    before = -1
    for each in acknowledgements:
        if each.first_offset > each.last_offset or each.first_offset <= before:
            raise InvalidRequest("The batches of acknowledgements do not follow one another.")
        if len(each.types) not in {1, each.last_offset - each.first_offset + 1}:
            raise InvalidRequest("One type of acknowledgement, or one for each record is expected.")
        if any(not 0 <= kind <= AcknowledgeType.RENEW for kind in each.types):
            raise InvalidRequest("The type of an acknowledgement is unknown.")
        before = each.last_offset


def check_batches(start_offset: int, batches: Sequence[StateBatch]) -> None:
    """Raise InvalidRequest for batches that no leader stores: they could take much memory."""
    before = start_offset - 1
    for each in batches:
        if not before < each.first_offset <= each.last_offset < start_offset + _SPAN_MAX:
            raise InvalidRequest("The batches of the state do not follow one another.")
        before = each.last_offset
