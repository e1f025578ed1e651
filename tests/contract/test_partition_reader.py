"""Reading a partition up to its end while transactions are open there, on any Kafka."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from consumers.worker.partitions import PartitionReader
from consumers.worker.records import StateRecord
from consumers.worker.restore import Restorer
from tests.consumers.running import await_condition
from waylog.kafka.clients import client_config
from waylog.process.process_status import ProcessStatus

TIMEOUT_S = 60


@pytest.fixture
def reader(bootstrap_servers: str) -> Iterator[PartitionReader]:
    reader = PartitionReader(client_config(bootstrap_servers, "reader"), "none")
    yield reader
    reader.close()


def begin(producer: Callable[..., Any], topic: str, *values: str) -> Producer:
    """Write values in a transaction, and leave it open."""
    producing: Producer = producer(transactional_id=f"open-{uuid.uuid4().hex[:12]}")
    producing.init_transactions(TIMEOUT_S)
    producing.begin_transaction()
    write(producing, topic, *values)
    return producing


def write(producing: Producer, topic: str, *values: str) -> None:
    for value in values:
        producing.produce(topic, value, value[:1], partition=0)
    assert producing.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_that_is_open_at_the_end_is_read_when_it_is_decided(
    producer: Callable[..., Any], topic: str, reader: PartitionReader, is_committed: bool
) -> None:
    write(producer(), topic, "before")
    first = begin(producer, topic, "first")
    second = begin(producer, topic, "second")
    bounds = reader.bounds(topic, 0)
    assert bounds == (0, 3)
    batches = reader.batches(topic, 0, *bounds)
    assert [record.value() for record in next(batches)] == [b"before"]
    # The earlier one is decided; the end is still undecided.
    first.commit_transaction(TIMEOUT_S)
    assert [record.value() for record in next(batches)] == [b"first"]
    if is_committed:
        second.commit_transaction(TIMEOUT_S)
    else:
        second.abort_transaction(TIMEOUT_S)
    rest = [record.value() for records in batches for record in records]
    assert rest == ([b"second"] if is_committed else [])


def test_a_state_has_what_its_former_owner_commits_while_it_is_restored(
    bootstrap_servers: str, producer: Callable[..., Any], topic: str
) -> None:
    write(producer(), topic, "1")
    former = begin(producer, topic, "2", "3")
    restored: list[StateRecord] = []
    done = threading.Event()
    restorer = Restorer(client_config(bootstrap_servers, "restorer"), topic, ProcessStatus())
    try:
        restorer.restore(0, restored.extend, done.set, threading.Event())
        await_condition(lambda: restored == [(b"1", b"1")], TIMEOUT_S, "the first record")
        assert not done.is_set()
        former.commit_transaction(TIMEOUT_S)
        assert done.wait(TIMEOUT_S)
        assert restored == [(b"1", b"1"), (b"2", b"2"), (b"3", b"3")]
    finally:
        restorer.close()
    assert restorer.failed is None
