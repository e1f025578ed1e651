from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_core.coordinator.sharing.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRecords,
    DeliveryState,
    LogBatch,
    SharePartition,
    SharePartitionSettings,
    StateBatch,
)
from broker_core.coordinator.sharing.share_records import (
    SharePartitionKey,
    StoredState,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from broker_core.errors import InvalidRecordState, InvalidRequest

_SETTINGS = SharePartitionSettings(lock_ms=1000, deliveries_max=2, in_flight_max=100)
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW,
)  # fmt: skip


def batches(*ends: int, first: int = 0) -> list[LogBatch]:
    found = []
    for end in ends:
        found.append(LogBatch(first, end, True))
        first = end + 1
    return found


def answer(first: int, last: int, *kinds: AcknowledgeType) -> list[Acknowledgement]:
    return [Acknowledgement(first, last, kinds)]


def test_what_one_member_has_no_other_gets() -> None:
    share = SharePartition(0, _SETTINGS)
    assert share.acquire("a", batches(4, 9), 5, 0) == [AcquiredRecords(0, 4, 1)]
    assert share.acquire("b", batches(4, 9), 5, 0) == [AcquiredRecords(5, 9, 1)]
    assert share.next_offset() == 10


def test_a_batch_is_divided_only_for_who_asks_for_a_strict_limit() -> None:
    assert SharePartition(0, _SETTINGS).acquire("a", batches(9), 3, 0) == [AcquiredRecords(0, 9, 1)]
    strict = SharePartition(0, _SETTINGS)
    assert strict.acquire("a", batches(9), 3, 0, is_strict=True) == [AcquiredRecords(0, 2, 1)]
    assert strict.next_offset() == 3


def test_what_a_member_calls_a_gap_is_over() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(4), 5, 0)
    assert not share.acknowledge("a", answer(0, 2, AcknowledgeType.GAP), 0)
    assert (share.start_offset, share.in_flight) == (3, 2)


def test_what_is_accepted_in_order_is_forgotten() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(9), 10, 0)
    share.acknowledge("a", answer(5, 9, ACCEPT), 0)
    assert (share.start_offset, share.in_flight) == (0, 10)
    share.acknowledge("a", answer(0, 4, ACCEPT, REJECT, ACCEPT, REJECT, ACCEPT), 0)
    assert (share.start_offset, share.in_flight) == (10, 0)


def test_what_is_released_is_delivered_again_but_not_for_ever() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(0), 1, 0)
    assert share.acknowledge("a", answer(0, 0, RELEASE), 0)
    assert share.acquire("b", batches(0), 1, 0) == [AcquiredRecords(0, 0, 2)]
    assert not share.acknowledge("b", answer(0, 0, RELEASE), 0)
    assert share.start_offset == 1


def test_a_lock_ends_by_itself_unless_it_is_renewed() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(1), 2, 0)
    share.acknowledge("a", answer(1, 1, RENEW), 900)
    assert share.next_deadline() == 1000
    assert share.tick(1000)
    assert share.acquire("b", batches(1), 2, 1000) == [AcquiredRecords(0, 0, 2)]
    assert share.tick(1900)
    assert share.acquire("b", batches(1), 2, 1900) == [AcquiredRecords(1, 1, 2)]


def test_what_the_one_who_goes_gives_back_has_been_delivered_once() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(1), 2, 0)
    assert share.release("a")
    assert share.acquire("b", batches(1), 2, 0) == [AcquiredRecords(0, 1, 2)]


@pytest.mark.parametrize(
    "wrong",
    [answer(0, 0, ACCEPT), answer(1, 3, ACCEPT), answer(9, 9, ACCEPT)],
    ids=["another's", "partly another's", "nobody's"],
)
def test_only_the_owner_answers_and_a_wrong_answer_changes_nothing(
    wrong: list[Acknowledgement],
) -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("b", batches(1), 2, 0)
    share.acquire("a", batches(3, first=2), 2, 0)
    before = share.batches()
    with pytest.raises(InvalidRecordState):
        share.acknowledge("a", wrong, 0)
    assert share.batches() == before


@pytest.mark.parametrize(
    "wrong",
    [
        [Acknowledgement(3, 1, [1])],
        [Acknowledgement(0, 1, [1, 1, 1])],
        [Acknowledgement(0, 1, [])],
        [Acknowledgement(0, 1, [9])],
        [Acknowledgement(0, 2, [1]), Acknowledgement(2, 3, [1])],
    ],
)
def test_nonsense_is_refused(wrong: list[Acknowledgement]) -> None:
    with pytest.raises(InvalidRequest):
        SharePartition(0, _SETTINGS).acknowledge("a", wrong, 0)


def test_markers_and_aborted_records_go_to_nobody() -> None:
    share = SharePartition(0, _SETTINGS)
    read = [LogBatch(0, 2, False), LogBatch(3, 4, True), LogBatch(5, 5, False)]
    assert share.acquire("a", read, 10, 0) == [AcquiredRecords(3, 4, 1)]
    share.acknowledge("a", answer(3, 4, ACCEPT), 0)
    assert share.start_offset == 6


def test_offsets_that_the_log_does_not_have_are_over_at_once() -> None:
    share = SharePartition(0, _SETTINGS)
    far = 10**9
    gap = LogBatch(5, far - 1, False)
    read = [*batches(4), gap, LogBatch(far, far + 1, True)]
    # The state of what is in flight must not grow without limit: the first records go first.
    assert share.acquire("a", read, 10, 0) == [AcquiredRecords(0, 4, 1)]
    assert share.in_flight == 5
    share.acknowledge("a", answer(0, 4, ACCEPT), 0)
    assert share.start_offset == far
    assert share.acquire("a", read[2:], 10, 0) == [AcquiredRecords(far, far + 1, 1)]
    share.acknowledge("a", answer(far, far + 1, ACCEPT), 0)
    assert (share.start_offset, share.in_flight, share.next_offset()) == (far + 2, 0, far + 2)


def test_offsets_that_the_log_does_not_have_take_no_room_among_those_in_flight() -> None:
    share = SharePartition(0, _SETTINGS)
    read = [*batches(4), LogBatch(5, 999, False), LogBatch(1000, 1004, True)]
    assert share.acquire("a", read, 10, 0) == [
        AcquiredRecords(0, 4, 1),
        AcquiredRecords(1000, 1004, 1),
    ]
    assert (share.in_flight, share.next_offset()) == (10, 1005)
    share.acknowledge("a", answer(1000, 1004, ACCEPT), 0)
    share.acknowledge("a", answer(0, 3, ACCEPT), 0)
    # A restart does not know that there is nothing between them, and reads again.
    again = SharePartition(share.start_offset, _SETTINGS, share.batches())
    assert again.next_offset() == 4
    assert again.acquire("a", [LogBatch(4, 4, True), *read[1:]], 10, 0) == [
        AcquiredRecords(4, 4, 2)
    ]
    assert again.next_offset() == 1005
    again.acknowledge("a", answer(4, 4, ACCEPT), 0)
    assert (again.start_offset, again.in_flight) == (1005, 0)


def test_too_many_records_at_a_time_are_not_given() -> None:
    share = SharePartition(0, _SETTINGS)
    assert share.acquire("a", batches(149), 1000, 0) == [AcquiredRecords(0, 99, 1)]
    assert share.next_offset() is None
    share.acknowledge("a", answer(0, 49, ACCEPT), 0)
    assert share.next_offset() == 100
    assert share.acquire("a", batches(149), 1000, 0) == [AcquiredRecords(100, 149, 1)]


def test_what_the_log_has_lost_is_over() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(9), 10, 0)
    share.begin_at(7)
    assert (share.start_offset, share.in_flight) == (7, 3)
    share.begin_at(20)
    assert share.next_offset() == 20


def test_a_restart_forgets_who_had_what_and_nothing_else() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(9), 10, 0)
    share.acknowledge("a", answer(4, 5, ACCEPT), 0)
    stored = decode_value(encode_value(StoredState(share.start_offset, share.batches()), 0))
    again = SharePartition(stored.start_offset, _SETTINGS, stored.batches)
    assert again.acquire("b", batches(9), 10, 0) == [
        AcquiredRecords(0, 3, 2),
        AcquiredRecords(6, 9, 2),
    ]
    place = SharePartitionKey("g", bytes(range(16)), 3)
    assert decode_key(encode_key(place)) == place


def test_a_restart_during_the_last_delivery_leaves_one_more_but_not_more_than_the_maximum() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(0), 1, 0)
    share.acknowledge("a", answer(0, 0, RELEASE), 0)
    assert share.acquire("a", batches(0), 1, 0) == [AcquiredRecords(0, 0, 2)]
    again = SharePartition(share.start_offset, _SETTINGS, share.batches())
    assert again.acquire("b", batches(0), 1, 0) == [AcquiredRecords(0, 0, 2)]
    assert not again.acknowledge("b", answer(0, 0, RELEASE), 0)
    assert again.start_offset == 1


def test_what_was_not_stored_of_the_middle_is_delivered() -> None:
    stored = [StateBatch(3, 4, DeliveryState.ACKNOWLEDGED, 1)]
    share = SharePartition(0, _SETTINGS, stored)
    assert share.acquire("a", batches(9), 10, 0) == [
        AcquiredRecords(0, 2, 1),
        AcquiredRecords(5, 9, 1),
    ]


def test_records_for_which_there_was_no_room_are_not_passed_over_with_a_gap_behind_them() -> None:
    share = SharePartition(0, _SETTINGS)
    gap, behind = LogBatch(150, 159, False), LogBatch(160, 164, True)
    assert share.acquire("a", [LogBatch(0, 149, True), gap, behind], 1000, 0) == [
        AcquiredRecords(0, 99, 1)
    ]
    share.acknowledge("a", answer(0, 99, ACCEPT), 0)
    assert share.next_offset() == 100
    assert share.acquire("a", [LogBatch(100, 149, True), gap, behind], 1000, 0) == [
        AcquiredRecords(100, 149, 1),
        AcquiredRecords(160, 164, 1),
    ]


def test_what_compaction_takes_from_a_member_may_still_be_answered() -> None:
    share = SharePartition(0, _SETTINGS)
    share.acquire("a", batches(4), 10, 0)
    taken = [LogBatch(0, 1, True), LogBatch(2, 3, False), LogBatch(4, 9, True)]
    assert share.acquire("b", taken, 10, 0) == [AcquiredRecords(5, 9, 1)]
    share.acknowledge("a", answer(0, 4, ACCEPT), 0)
    assert (share.start_offset, share.in_flight) == (5, 5)


#: Offsets that the log of the model has lost, or that compaction has taken.
_GONE = frozenset({0, 1, *range(17, 24), 40, 58, 59})


def read_log(first: int, size: int) -> list[LogBatch]:
    """Read some batches of `size` records, or fewer before a gap, of a log that ends at 60."""
    found: list[LogBatch] = []
    while first < 60 and len(found) < 6:
        is_gone = first in _GONE
        end = first + 1
        while end < 60 and (end in _GONE) == is_gone and (is_gone or end < first + size):
            end += 1
        found.append(LogBatch(first, end - 1, not is_gone))
        first = end
    return found


class _Deliveries(RuleBasedStateMachine):
    """Members acquire, acknowledge, leave and return; the log ends at 60, and has gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.share = SharePartition(0, _SETTINGS)
        self.now = 0
        self.owners: dict[int, str] = {}
        self.accepted: set[int] = set()

    members = st.sampled_from("abc")

    @rule(member=members, size=st.integers(1, 9), records=st.integers(1, 20), strict=st.booleans())
    def acquire(self, member: str, size: int, records: int, strict: bool) -> None:
        offset = self.share.next_offset()
        if offset is None or offset >= 60:
            return
        read = read_log(offset, size)
        for run in self.share.acquire(member, read, records, self.now, is_strict=strict):
            for each in range(run.first_offset, run.last_offset + 1):
                assert each not in self.owners
                assert each not in self.accepted
                assert each not in _GONE
                self.owners[each] = member

    @rule(member=members, kind=st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW]), at=st.integers(0))
    def acknowledge(self, member: str, kind: AcknowledgeType, at: int) -> None:
        mine = sorted(each for each, owner in self.owners.items() if owner == member)
        if not mine:
            return
        offset = mine[at % len(mine)]
        self.share.acknowledge(member, answer(offset, offset, kind), self.now)
        if kind is not RENEW:
            del self.owners[offset]
        if kind is ACCEPT:
            self.accepted.add(offset)

    @rule(member=members)
    def go(self, member: str) -> None:
        self.share.release(member)
        self.owners = {each: owner for each, owner in self.owners.items() if owner != member}

    @rule(ms=st.integers(2000, 3000))
    def all_locks_end(self, ms: int) -> None:
        self.now += ms
        self.share.tick(self.now)
        self.owners.clear()

    @rule()
    def restart(self) -> None:
        self.share = SharePartition(self.share.start_offset, _SETTINGS, self.share.batches())
        self.owners.clear()

    @invariant()
    def nothing_that_is_out_is_before_the_start(self) -> None:
        assert all(each >= self.share.start_offset for each in self.owners)
        assert self.share.start_offset <= self.share.end_offset <= 60
        span = range(self.share.start_offset, self.share.end_offset)
        # After a restart gaps count as records until they are read again.
        assert len(set(span) - _GONE) <= self.share.in_flight <= len(span)


TestDeliveries = _Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=25, stateful_step_count=40)
