"""Idempotent producers: repeated batches, gaps, fencing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import (
    BrokerError,
    DuplicateSequenceNumber,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
)
from broker_core.log.producer_state import ProducerState, WrittenBatch
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.stored_batches import scan_batches

NOW = 1_700_000_000_000
LAST_SEQUENCE = 2**31 - 1


def header(
    base_sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, offset: int = 0
) -> BatchHeader:
    data = build_batch(
        [(NOW, None, b"v", [])] * count,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
    )
    return scan_batches(data)[0][0]


def written(state: ProducerState, *headers: BatchHeader, now_ms: int = NOW) -> None:
    for each in headers:
        assert state.check([each]) is None
        state.update(each, now_ms)


def test_batches_in_sequence_are_new() -> None:
    state = ProducerState()
    written(state, header(0, 3), header(3, 2, offset=3), header(5, offset=5))


def test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_offsets() -> None:
    state = ProducerState()
    written(state, *(header(i * 2, 2, offset=100 + i * 2) for i in range(7)))
    for i in range(2, 7):
        assert state.check([header(i * 2, 2)]) == WrittenBatch(
            i * 2, i * 2 + 1, 100 + i * 2, 101 + i * 2
        )
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check([header(2, 2)])


def test_a_gap_is_refused() -> None:
    state = ProducerState()
    written(state, header(0, 3))
    with pytest.raises(OutOfOrderSequenceNumber, match="sequence 4 of epoch 0 where 3 is next"):
        state.check([header(4)])


def test_a_batch_that_overlaps_a_written_one_is_refused() -> None:
    state = ProducerState()
    written(state, header(0, 3))
    for overlapping in (header(0, 2), header(1, 2), header(2, 2), header(0, 4)):
        with pytest.raises(OutOfOrderSequenceNumber):
            state.check([overlapping])


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    state = ProducerState()
    written(state, header(0, 3, epoch=4))
    with pytest.raises(InvalidProducerEpoch, match="sent epoch 3, the log has seen 4"):
        state.check([header(3, epoch=3)])
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check([header(3, epoch=5)])
    written(state, header(0, 3, epoch=5))
    with pytest.raises(InvalidProducerEpoch):
        state.check([header(0, 3, epoch=4)])


def test_sequence_numbers_go_on_at_zero_after_the_last() -> None:
    state = ProducerState()
    written(state, header(LAST_SEQUENCE - 1, 4), header(2, offset=4))
    assert state.check([header(LAST_SEQUENCE - 1, 4)]) == WrittenBatch(LAST_SEQUENCE - 1, 1, 0, 3)


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    assert ProducerState().check([header(1234)]) is None


def test_batches_without_a_producer_are_always_new() -> None:
    state = ProducerState()
    plain = scan_batches(build_batch([(NOW, None, b"v", [])]))[0]
    assert state.check(plain) is None
    assert state.check(plain * 2) is None
    state.update(plain[0], NOW)
    assert len(state) == 0


def test_several_batches_of_one_append_are_checked_as_a_sequence() -> None:
    state = ProducerState()
    assert state.check([header(0, 2), header(2, 2), header(0, producer_id=8)]) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check([header(0, 2), header(3, 2)])
    for each in (header(0, 2), header(2, 2, offset=2)):
        state.update(each, NOW)
    assert state.check([header(0, 2), header(2, 2)]) == WrittenBatch(0, 3, 0, 3)
    with pytest.raises(DuplicateSequenceNumber):
        state.check([header(2, 2), header(4, 2)])


def test_silent_producers_are_forgotten_by_the_brokers_clock() -> None:
    state = ProducerState()
    written(state, header(0), now_ms=NOW)
    written(state, header(0, producer_id=8), now_ms=NOW + 10)
    assert state.expire(NOW) == 1
    assert state.get(7) is None
    assert state.get(8) is not None


def test_a_flood_of_producer_ids_makes_the_oldest_be_forgotten() -> None:
    state = ProducerState(producers_max=10)
    for producer_id in range(25):
        written(state, header(0, producer_id=producer_id), now_ms=NOW + producer_id)
    assert len(state) == 10
    assert state.get(24) is not None
    assert state.get(0) is None


def test_a_damaged_snapshot_is_none() -> None:
    state = ProducerState()
    written(state, header(0, 3))
    data = state.to_bytes()
    assert ProducerState.from_bytes(data) is not None
    for size in range(len(data)):
        assert ProducerState.from_bytes(data[:size]) is None
    assert ProducerState.from_bytes(data[:-1] + b"\x55") is None
    for bit in range(8 * len(data)):
        rotten = bytearray(data)
        rotten[bit // 8] ^= 1 << bit % 8
        assert ProducerState.from_bytes(bytes(rotten)) is None, bit


events = st.lists(
    st.tuples(
        st.integers(1, 3),  # producer id
        st.integers(0, 2),  # epoch
        st.sampled_from(["next", "retry", "gap", "restart"]),
        st.integers(1, 3),  # records
    ),
    max_size=60,
)


@given(events)
def test_whatever_producers_do_each_record_is_written_once_and_in_order(
    steps: list[tuple[int, int, str, int]],
) -> None:
    """Compare with a model of unlimited memory: what it has as written is never written again."""
    state = ProducerState()
    log: list[tuple[int, int, int]] = []  # producer id, epoch, sequence
    sent: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for producer_id, epoch, action, count in steps:
        batches = sent.setdefault((producer_id, epoch), [])
        following = batches[-1][0] + batches[-1][1] if batches else 0
        sequence = {"next": following, "gap": following + 2, "restart": 0}.get(action, following)
        if action == "retry" and batches:
            sequence, count = batches[-1]  # noqa: PLW2901
        each = header(sequence, count, epoch=epoch, producer_id=producer_id, offset=len(log))
        try:
            duplicate = state.check([each])
        except BrokerError:
            continue
        records = [(producer_id, epoch, sequence + i) for i in range(count)]
        if duplicate is not None:
            assert log[duplicate.base_offset : duplicate.last_offset + 1] == records
            continue
        assert not set(records) & set(log)
        log += records
        batches.append((sequence, count))
        state.update(each, NOW)
        loaded = ProducerState.from_bytes(state.to_bytes())
        assert loaded is not None
        assert loaded.to_bytes() == state.to_bytes()
    for producer_id in (1, 2, 3):
        epochs = [epoch for pid, epoch, _ in log if pid == producer_id]
        assert epochs == sorted(epochs)
