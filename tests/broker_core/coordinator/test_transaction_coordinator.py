"""The transaction coordinator: epochs, transitions, timeouts, and recovery after a crash."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from broker_core import errors
from broker_core.coordinator.effects import Moment, Respond, StoreTransaction, WriteMarkers
from broker_core.coordinator.transaction import (
    EPOCH_MAX,
    Producer,
    Transaction,
    TransactionSettings,
    TransactionState,
    encode_transaction,
    encode_transaction_key,
)
from broker_core.coordinator.transaction_coordinator import (
    TransactionCoordinator,
    load_transaction,
)

A, B = ("a", 0), ("b", 1)
NEW = 2  # version of the transaction protocol with an epoch for each transaction


class Bench:
    """A coordinator with a list as its log; markers are written when the test says so."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.markers: list[WriteMarkers] = []
        self.disk_works = True
        self.writes_markers = True
        self._tokens = itertools.count()
        self._ids = itertools.count(100)
        self._now_ms = 1_000
        self.coordinator = self._new()

    def _new(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionSettings(), new_producer_id=lambda: next(self._ids)
        )

    @property
    def now(self) -> Moment:
        """The time of the next step."""
        return Moment(self._now_ms, 1_700_000_000_000 + self._now_ms)

    def perform(self) -> None:
        """Perform the coordinator's effects."""
        while effects := self.coordinator.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    assert isinstance(effect.token, str)
                    assert effect.token not in self.answers
                    self.answers[effect.token] = dict(effect.response)
                elif isinstance(effect, StoreTransaction):
                    self._store(effect)
                elif self.writes_markers:
                    self._write(effect)
                else:
                    self.markers.append(effect)

    def _store(self, effect: StoreTransaction) -> None:
        if not self.disk_works:
            self.coordinator.store_failed(effect, self.now)
            return
        value = None if effect.transaction is None else encode_transaction(effect.transaction)
        self.log.append((encode_transaction_key(effect.transactional_id), value))
        self.coordinator.stored(effect, self.now)

    def _write(self, effect: WriteMarkers) -> None:
        self.markers.append(effect)
        self.coordinator.markers_written(effect, self.now)

    def write_markers(self) -> None:
        """Write the markers that wait to be written."""
        waiting, self.markers = self.markers, []
        for effect in waiting:
            self._write(effect)
        self.perform()

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms
        self.coordinator.tick(self.now)
        self.perform()

    def restart(self) -> None:
        """Replace the coordinator by one that reads the log."""
        self.coordinator = self._new()
        self.markers.clear()
        self.load()

    def load(self) -> None:
        """Load the log into the coordinator."""
        transactions: dict[str, Transaction] = {}
        for key, value in self.log:
            load_transaction(transactions, key, value)
        self.coordinator.adopt(transactions, self.now)
        self.perform()

    def init(
        self, expected: tuple[int, int] | None = None, timeout_ms: int = 60_000
    ) -> dict[str, Any]:
        """Send InitProducerId for "x"; return the response, empty if there is none yet."""
        token = f"i{next(self._tokens)}"
        self.coordinator.init_producer_id("x", timeout_ms, expected, token, self.now)
        self.perform()
        return self.answers.get(token, {})

    def add(self, producer: Producer, *places: tuple[str, int]) -> int | None:
        """Send AddPartitionsToTxn; return the error code if there is a response yet."""
        token = f"a{next(self._tokens)}"
        self.coordinator.add_partitions(producer, places, token, self.now)
        self.perform()
        return self.answers.get(token, {}).get("error_code")

    def end(self, producer: Producer, committed: bool, version: int = 0) -> dict[str, Any]:
        """Send EndTxn; return the response, empty if there is none yet."""
        token = f"e{next(self._tokens)}"
        self.coordinator.end_transaction(producer, committed, version, token, self.now)
        self.perform()
        return self.answers.get(token, {})

    @property
    def state(self) -> str:
        """The state of "x"."""
        return self.coordinator.transactions["x"].state.name


@pytest.fixture
def bench() -> Bench:
    return Bench()


def producer_of(answer: dict[str, Any]) -> Producer:
    return Producer("x", answer["producer_id"], answer["producer_epoch"])


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_in_all_its_partitions(bench: Bench, committed: bool) -> None:
    mine = producer_of(bench.init())
    assert mine == ("x", 100, 0)
    assert bench.add(mine, A) == errors.NONE
    assert bench.add(mine, A, B) == errors.NONE
    assert bench.end(mine, committed)["error_code"] == errors.NONE
    (markers,) = bench.markers
    assert (markers.committed, set(markers.partitions)) == (committed, {A, B})
    assert (markers.transaction.producer_id, markers.transaction.epoch) == (100, 0)
    # A client that lost the response may repeat the request, but not ask for the opposite.
    assert bench.end(mine, committed)["error_code"] == errors.NONE
    assert bench.end(mine, not committed)["error_code"] == errors.InvalidTxnState.code


def test_every_initialisation_fences_the_one_before(bench: Bench) -> None:
    first = producer_of(bench.init())
    second = producer_of(bench.init())
    assert second == ("x", 100, 1)
    assert bench.add(first, A) == errors.ProducerFenced.code
    assert bench.end(first, True)["error_code"] == errors.ProducerFenced.code
    stranger = Producer("x", 7, 1)
    assert bench.add(stranger, A) == errors.InvalidProducerIdMapping.code
    assert bench.add(Producer("y", 100, 1), A) == errors.InvalidProducerIdMapping.code
    assert bench.add(Producer("", 100, 1), A) == errors.InvalidRequest.code


def test_who_comes_back_aborts_what_it_had_begun(bench: Bench) -> None:
    first = producer_of(bench.init())
    bench.add(first, A)
    second = producer_of(bench.init())
    (markers,) = bench.markers
    assert not markers.committed
    assert markers.transaction.epoch == 1, "the marker fences the first in the partitions"
    assert second == ("x", 100, 2)
    assert bench.end(first, True)["error_code"] == errors.ProducerFenced.code


def test_requests_wait_for_a_transition_and_keep_their_order(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    bench.writes_markers = False
    assert bench.end(mine, True) == {}
    assert bench.add(mine, B) is None
    assert bench.state == "PREPARE_COMMIT"
    bench.write_markers()
    assert bench.state == "ONGOING"
    assert bench.coordinator.transactions["x"].partitions == {B}
    assert [answer["error_code"] for answer in bench.answers.values()] == [errors.NONE] * 4


def test_what_was_decided_is_carried_out_after_a_crash(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    bench.writes_markers = False
    bench.end(mine, True)
    bench.restart()
    (markers,) = bench.markers
    assert markers.committed and markers.partitions == {A}
    bench.writes_markers = True
    bench.write_markers()
    assert bench.state == "COMPLETE_COMMIT"
    assert bench.end(mine, True)["error_code"] == errors.NONE


def test_a_transaction_goes_on_after_a_crash(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    bench.restart()
    assert bench.coordinator.verify(mine, A) == errors.NONE
    assert bench.coordinator.verify(mine, B) == errors.TransactionAbortable.code
    assert bench.end(mine, True)["error_code"] == errors.NONE


def test_a_transaction_times_out_and_its_producer_is_fenced(bench: Bench) -> None:
    mine = producer_of(bench.init(timeout_ms=5_000))
    bench.add(mine, A)
    bench.advance(4_999)
    assert bench.state == "ONGOING"
    bench.advance(1)
    assert bench.state == "COMPLETE_ABORT"
    assert bench.end(mine, True)["error_code"] == errors.ProducerFenced.code
    # The timeout does not run while there is no transaction.
    mine = producer_of(bench.init(timeout_ms=5_000))
    bench.advance(10_000)
    assert bench.add(mine, A) == errors.NONE


def test_a_producer_goes_on_after_an_error_with_the_next_epoch(bench: Bench) -> None:
    mine = producer_of(bench.init())
    again = producer_of(bench.init(expected=(100, 0)))
    assert again == ("x", 100, 1)
    assert producer_of(bench.init(expected=(100, 0))) == again, "the answer may have been lost"
    other = producer_of(bench.init())
    assert other.epoch == 2
    assert bench.init(expected=(100, 1))["error_code"] == errors.ProducerFenced.code
    assert bench.init(expected=(7, 2))["error_code"] == errors.ProducerFenced.code
    assert mine.epoch == 0


def test_new_clients_get_an_epoch_for_each_transaction(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    ended = bench.end(mine, True, NEW)
    assert producer_of(ended) == ("x", 100, 1)
    assert bench.markers[-1].transaction.epoch == 1
    assert bench.end(mine, True, NEW) == ended, "the answer may have been lost"
    assert bench.end(mine, False, NEW)["error_code"] == errors.InvalidTxnState.code
    next_one = producer_of(ended)
    assert bench.add(mine, A) == errors.ProducerFenced.code
    # The client cannot know whether one of its records began a transaction: it may always abort.
    aborted = bench.end(next_one, False, NEW)
    assert producer_of(aborted).epoch == 2
    assert bench.end(producer_of(aborted), True, NEW)["error_code"] == errors.InvalidTxnState.code


@pytest.mark.parametrize("version", [0, NEW])
def test_a_used_up_producer_id_is_replaced(bench: Bench, version: int) -> None:
    mine = producer_of(bench.init())
    for _ in range(EPOCH_MAX - 1):
        mine = producer_of(bench.init())
        bench.log.clear()
    assert mine.epoch == EPOCH_MAX - 1
    bench.add(mine, A)
    ended = bench.end(mine, True, version)
    assert ended["error_code"] == errors.NONE
    if version == NEW:
        assert bench.markers[-1].transaction.epoch == EPOCH_MAX
        assert producer_of(ended) == ("x", 101, 0)
        assert bench.end(mine, True, NEW) == ended
        assert bench.add(producer_of(ended), A) == errors.NONE
    else:
        assert producer_of(bench.init()) == ("x", 101, 0)


def test_the_epoch_that_fences_a_client_is_no_clients(bench: Bench) -> None:
    mine = producer_of(bench.init())
    for _ in range(EPOCH_MAX - 1):
        mine = producer_of(bench.init(timeout_ms=1_000))
        bench.log.clear()
    bench.add(mine, A)
    bench.advance(2_000)
    assert bench.markers[-1].transaction.epoch == EPOCH_MAX
    guessed = mine._replace(epoch=EPOCH_MAX)
    assert bench.add(guessed, A) == errors.ProducerFenced.code
    for version in (0, NEW):
        for committed in (True, False):
            answer = bench.end(guessed, committed, version)
            assert answer["error_code"] == errors.ProducerFenced.code
    assert producer_of(bench.init()) == ("x", 101, 0)


def test_a_transaction_with_the_largest_epoch_ends_when_its_time_is_up(bench: Bench) -> None:
    stored = Transaction(
        "x",
        producer_id=100,
        timeout_ms=1_000,
        epoch=EPOCH_MAX,
        state=TransactionState.ONGOING,
        partitions=frozenset({A}),
        started_ms=bench.now.wall_ms,
    )
    bench.log.append((encode_transaction_key("x"), encode_transaction(stored)))
    bench.restart()
    bench.advance(2_000)
    assert bench.markers[-1].transaction.epoch == EPOCH_MAX
    assert bench.state == "COMPLETE_ABORT"


def test_what_cannot_be_stored_has_not_happened(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    bench.disk_works = False
    failed = errors.CoordinatorNotAvailable.code
    assert bench.end(mine, True)["error_code"] == failed
    assert bench.add(mine, B) == failed
    assert bench.init()["error_code"] == failed
    assert bench.state == "ONGOING"
    bench.disk_works = True
    assert bench.end(mine, True)["error_code"] == errors.NONE
    assert bench.markers[-1].partitions == {A}


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
def test_an_impossible_timeout_is_refused(bench: Bench, timeout_ms: int) -> None:
    answer = bench.init(timeout_ms=timeout_ms)
    assert answer["error_code"] == errors.InvalidTransactionTimeout.code


def test_ids_that_nobody_uses_are_forgotten(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    week_ms = 7 * 24 * 60 * 60_000
    bench._now_ms += week_ms
    bench.coordinator.expire_ids(bench.now)
    assert "x" in bench.coordinator.transactions, "its transaction is open"
    bench.advance(0)
    bench._now_ms += week_ms
    bench.coordinator.expire_ids(bench.now)
    bench.perform()
    assert bench.coordinator.transactions == {}
    bench.restart()
    assert bench.coordinator.transactions == {}
    assert bench.add(mine, A) == errors.InvalidProducerIdMapping.code


def test_no_more_requests_wait_than_are_bearable(bench: Bench) -> None:
    mine = producer_of(bench.init())
    bench.add(mine, A)
    bench.writes_markers = False
    bench.end(mine, True)
    codes = [bench.add(mine, A) for _ in range(100)]
    assert codes.count(None) == 64
    assert codes.count(errors.ConcurrentTransactions.code) == 36


@pytest.mark.parametrize("seed", range(150))
def test_no_order_of_requests_breaks_a_transactional_id(seed: int) -> None:
    dice = random.Random(seed)
    bench = Bench()
    producers = [Producer("x", 100, 0)]
    if seed % 2:
        # The producer id has hardly any epochs left.
        stored = Transaction("x", producer_id=100, timeout_ms=1_000, epoch=EPOCH_MAX - 3)
        bench.log.append((encode_transaction_key("x"), encode_transaction(stored)))
        bench.restart()
        producers = [Producer("x", 100, EPOCH_MAX - 3)]
    epochs = (-1, 0, 1, EPOCH_MAX - 1, EPOCH_MAX)
    for _ in range(80):
        mine = dice.choice(producers[-4:])
        if dice.random() < 0.2:
            mine = mine._replace(epoch=dice.choice(epochs))
        what = dice.random()
        if what < 0.25:
            expected = dice.choice((None, None, (mine.producer_id, mine.epoch)))
            answer = bench.init(expected, dice.choice((1, 1_000, 60_000)))
            if answer.get("error_code") == errors.NONE:
                producers.append(producer_of(answer))
        elif what < 0.55:
            bench.add(mine, dice.choice((A, B)))
        elif what < 0.75:
            answer = bench.end(mine, dice.random() < 0.5, dice.choice((0, NEW)))
            if answer.get("error_code") == errors.NONE and "producer_id" in answer:
                producers.append(producer_of(answer))
        elif what < 0.85:
            bench.disk_works = not bench.disk_works
        elif what < 0.9:
            bench.writes_markers = not bench.writes_markers
        elif what < 0.92:
            bench.restart()
        else:
            bench.advance(dice.choice((1, 100, 2_000, 61_000)))
    bench.disk_works = bench.writes_markers = True
    bench.write_markers()
    for _ in range(3):
        bench.advance(61_000)
        bench.write_markers()
    assert bench.init()["error_code"] == errors.NONE
