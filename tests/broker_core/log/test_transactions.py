"""Transactions in a log: last stable offset, aborted transactions, and both after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    TransactionCoordinatorFenced,
)
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.log import AppendResult
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.control_records import EndMarker, build_end_marker, read_end_marker
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import HOUR_MS, NOW, Workbench


class Transactions:
    """Transactional producers that write into one log."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._sequences: dict[tuple[int, int], int] = {}

    def write(
        self, producer_id: int, *keys: str, epoch: int = 0, verified: bool = True
    ) -> AppendResult:
        sequence = self._sequences.get((producer_id, epoch), 0)
        batch = build_batch(
            [(NOW, key.encode(), b"value of %d" % producer_id, ()) for key in keys],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        result = self.bench.log.append(batch, leader_epoch=0, now_ms=NOW, verified=verified)
        self._sequences[(producer_id, epoch)] = sequence + len(keys)
        return result

    def end(
        self, producer_id: int, committed: bool, *, epoch: int = 0, coordinator_epoch: int = 0
    ) -> AppendResult:
        marker = EndMarker(committed, coordinator_epoch)
        batch = build_end_marker(producer_id, epoch, marker, NOW)
        return self.bench.log.append_from_coordinator(
            batch, leader_epoch=0, now_ms=NOW, marker=marker
        )

    def committed_keys(self) -> list[bytes]:
        """Return the keys that a consumer with isolation.level=read_committed sees."""
        log = self.bench.log
        found: list[bytes] = []
        end = log.last_stable_offset
        offset = log.log_start_offset
        while offset < end:
            data, aborted = log.read_committed(offset, 1)
            header = scan_batches(data)[0][0]
            if not header.is_control and not any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset < each.last_offset
                for each in aborted
            ):
                found += [
                    record[2]
                    for record in self.bench.records()
                    if record[2] and header.base_offset <= record[0] < header.next_offset
                ]
            offset = header.next_offset
        return found


@pytest.fixture
def transactions(tmp_path: Path) -> Transactions:
    return Transactions(Workbench(tmp_path, segment_bytes=600))


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(
    transactions: Transactions,
) -> None:
    log = transactions.bench.log
    transactions.bench.append(b"plain")
    assert log.last_stable_offset == 1
    transactions.write(7, "a")
    transactions.write(8, "b")
    transactions.bench.append(b"plain")
    assert log.last_stable_offset == 1
    transactions.end(7, committed=True)
    assert log.last_stable_offset == 2
    transactions.end(8, committed=False)
    assert log.last_stable_offset == log.log_end_offset == 6
    assert log.read_committed(0, 10_000)[1] == [AbortedTransaction(8, 2, 5, 6)]
    assert log.read_committed(0, 1)[1] == []


def test_a_decision_counts_when_the_high_watermark_has_passed_its_marker(
    transactions: Transactions,
) -> None:
    log = transactions.bench.log
    log.high_watermark_follows_end = False
    transactions.write(7, "a")
    transactions.end(7, committed=True)
    log.high_watermark = 1
    assert log.last_stable_offset == 0
    log.high_watermark = 2
    assert log.last_stable_offset == 2


def test_a_transaction_begins_only_where_its_coordinator_knows_of_it(
    transactions: Transactions,
) -> None:
    with pytest.raises(InvalidTxnState):
        transactions.write(7, "a", verified=False)
    transactions.write(7, "a")
    transactions.write(7, "b", verified=False)
    plain = build_batch([(NOW, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=2)
    with pytest.raises(InvalidTxnState):
        transactions.bench.log.append(plain, leader_epoch=0, now_ms=NOW)


def test_a_marker_fences_older_epochs_and_older_coordinators(transactions: Transactions) -> None:
    transactions.write(7, "a")
    transactions.end(7, committed=False, epoch=1, coordinator_epoch=5)
    with pytest.raises(InvalidProducerEpoch):
        transactions.write(7, "late")
    with pytest.raises(InvalidProducerEpoch):
        transactions.end(7, committed=True, coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFenced):
        transactions.end(7, committed=True, epoch=1, coordinator_epoch=4)
    transactions.write(7, "b", epoch=1)
    transactions.end(7, committed=True, epoch=1, coordinator_epoch=5)
    assert transactions.committed_keys() == [b"b"]


def test_a_marker_tells_what_it_was_built_from() -> None:
    data = build_end_marker(7, 3, EndMarker(True, 9), NOW)
    (header,) = scan_batches(data)[0]
    assert header.is_control and header.is_transactional
    assert read_end_marker(data, header) == EndMarker(True, 9)
    other = build_batch([(NOW, b"\0\0\0\x05", b"", ())], is_control=True)
    assert read_end_marker(other, scan_batches(other)[0][0]) is None


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_open_transaction_outlives_the_process(
    transactions: Transactions, is_clean: bool
) -> None:
    bench = transactions.bench
    transactions.write(7, "a")
    transactions.end(7, committed=False)
    for i in range(20):
        transactions.write(8, f"b{i}")
    assert len(bench.log.segments) > 1
    if is_clean:
        bench.log.close()
    bench.open()
    assert bench.log.last_stable_offset == 2
    assert bench.log.producers.is_in_transaction(8)
    transactions.end(8, committed=True)
    assert bench.log.last_stable_offset == bench.log.log_end_offset
    assert transactions.committed_keys() == [b"b%d" % i for i in range(20)]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "commit", "abort", "roll", "flush", "reopen", "compact"]),
              st.integers(0, 2)),
    max_size=40,
)  # fmt: skip


@settings(max_examples=60)
@given(steps=_STEPS)
def test_readers_of_committed_records_see_exactly_what_was_committed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    bench = Workbench(
        tmp_path_factory.mktemp("log"),
        segment_bytes=400,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=HOUR_MS,
    )
    transactions = Transactions(bench)
    open_keys: dict[int, list[bytes]] = {}
    decided: list[tuple[int, bytes]] = []
    for number, (step, producer_id) in enumerate(steps):
        if step == "write":
            # Every key is used once, so that compaction removes only aborted records.
            transactions.write(producer_id, f"{number}")
            open_keys.setdefault(producer_id, []).append(b"%d" % number)
        elif step in {"commit", "abort"}:
            transactions.end(producer_id, committed=step == "commit")
            keys = open_keys.pop(producer_id, [])
            if step == "commit":
                decided += [(int(key), key) for key in keys]
        elif step == "roll":
            bench.log.roll()
        elif step == "flush":
            bench.log.flush()
        elif step == "reopen":
            bench.open()
        else:
            bench.log.flush()
            bench.log.compact(NOW + number * HOUR_MS)
    for producer_id in list(open_keys):
        transactions.end(producer_id, committed=False)
    assert transactions.committed_keys() == [key for _, key in sorted(decided)]
    bench.log.roll()
    bench.log.flush()
    bench.log.compact(NOW)
    assert transactions.committed_keys() == [key for _, key in sorted(decided)]
    stored = {record[2] for record in bench.records() if record[3] and b"value" in record[3]}
    assert stored == {key for _, key in decided}


def test_markers_go_when_their_records_and_their_time_have_gone(tmp_path: Path) -> None:
    bench = Workbench(
        tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=HOUR_MS,
    )  # fmt: skip
    transactions = Transactions(bench)
    transactions.write(7, "a", "b")
    transactions.end(7, committed=False)
    transactions.write(7, "c")
    transactions.end(7, committed=True)

    def batches(now_ms: int) -> list[tuple[int, bool]]:
        bench.append(b"newest")
        bench.log.roll()
        bench.log.flush()
        bench.log.compact(now_ms)
        data = bench.log.read(0, 10_000)
        return [(each.base_offset, each.is_control) for each in scan_batches(data)[0]]

    assert batches(NOW)[:3] == [(2, True), (3, False), (4, True)]
    assert batches(NOW + 2 * HOUR_MS)[:2] == [(3, False), (4, True)]


def test_transactions_that_nobody_reads_are_forgotten(tmp_path: Path) -> None:
    transactions = Transactions(Workbench(tmp_path))
    log = transactions.bench.log
    for _ in range(20):
        transactions.write(1, "a")
        transactions.end(1, committed=True)
    assert log.producers.ended <= 1
