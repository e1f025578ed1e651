"""A worker that stops while its group is rebalancing, on a real broker."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Consumer

from consumers.worker import session
from consumers.worker.records import InputRecord, OutputRecord, StateRecord
from consumers.worker.worker import Worker
from tests.closed_consumers import observed_consumers
from tests.consumers.running import Broker, await_condition
from tests.consumers.worker.counting import NoTelemetry
from waylog.kafka.clients import consumer_config
from waylog.kafka.group_membership import leave_group
from waylog.kafka.topics import ADDRESS, LOCATION


class NoState:
    def restore(self, records: Sequence[StateRecord]) -> None:
        """Remember nothing."""


class Held:
    """A processor that does nothing; a test can block it in `late_results`, to stop polling."""

    state_topic = ADDRESS

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.is_held = threading.Event()
        self.has_partitions = threading.Event()
        self.goes_on.set()

    def new_state(self) -> NoState:
        return NoState()

    def process(
        self,
        _batch: Mapping[int, Sequence[InputRecord]],
        _states: Mapping[int, NoState],
        _now_ms: int,
    ) -> list[OutputRecord]:
        return []

    def late_results(self, states: Mapping[int, NoState], _now_ms: int) -> list[OutputRecord]:
        if states:
            self.has_partitions.set()
        if not self.goes_on.is_set():
            self.is_held.set()
            assert self.goes_on.wait(60)
        return []

    def state_changes(self, states: Mapping[int, NoState]) -> Mapping[int, Sequence[StateRecord]]:
        return {}


def test_a_worker_that_is_stopped_amid_a_rebalance_leaves_before_it_closes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = observed_consumers()
    monkeypatch.setattr(session, "Consumer", observed)
    processor = Held()
    worker = Worker(
        broker.address, "group", LOCATION, processor, client_id="worker", telemetry=NoTelemetry()
    )
    running = threading.Thread(target=worker.run)
    running.start()
    other = Consumer(consumer_config(broker.address, "other", "group"))
    try:
        assert processor.has_partitions.wait(60)
        processor.goes_on.clear()
        assert processor.is_held.wait(60)
        # Half of the partitions is revoked from the worker, which does not poll.
        other.subscribe([LOCATION])
        await_condition(lambda: other.poll(0.05) is None and other.memberid(), 60, "a member")
        worker.stop()
        processor.goes_on.set()
        running.join(60)
        assert not running.is_alive()
        assert observed.held == [[]]
        await_condition(
            lambda: other.poll(0.05) is None and len(other.assignment()) == 4, 60, "all partitions"
        )
    finally:
        worker.stop()
        processor.goes_on.set()
        running.join(60)
        leave_group(other)
