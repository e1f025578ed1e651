"""Repeated kill -9 under load, with torn writes: nothing acknowledged is lost or duplicated.

WAYLOG_CRASHES is the number of kills (100).
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.contract.broker_process import BrokerProcess
from waylog.kafka.polling import next_messages

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

CRASHES = int(os.environ.get("WAYLOG_CRASHES", "100"))
PARTITIONS = 3
#: A client that reconnects quickly and logs nothing.
CLIENT: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process with small segments that acknowledges after fdatasync."""
    process = BrokerProcess(tmp_path, log_segment_bytes="200000")
    process.start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    for name in ("plain", "transactional"):
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    yield process
    process.stop()


class Writer(threading.Thread, ABC):
    """Writes numbers until it is stopped, and records which were acknowledged."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self.servers = servers
        self.acknowledged: list[int] = []
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        """See Thread."""
        try:
            self.write()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def write(self) -> None:
        """Write until `stopping`."""

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more numbers are acknowledged."""
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline and self.failure is None, self.failure
            time.sleep(0.002)

    def stop(self) -> None:
        """Stop, after everything has been acknowledged."""
        self.stopping.set()
        self.join(120)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


class IdempotentWriter(Writer):
    """Writes one number in each record, as fast as the broker takes them."""

    def write(self) -> None:
        """See Writer."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                **CLIENT,
            }
        )

        def delivered(error: object, message: Any) -> None:
            assert error is None, error
            self.acknowledged.append(int(message.value()))

        number = 0
        while not self.stopping.is_set():
            if len(producer) > 10_000:
                producer.poll(0.01)
                continue
            producer.produce(
                "plain", b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
            )
            number += 1
            producer.poll(0)
            if number % 20 == 0:
                time.sleep(0.005)
        assert producer.flush(60) == 0


class TransactionalWriter(Writer):
    """Writes one number in each transaction, to all partitions; aborts every third."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.aborted: list[int] = []
        self.undecided: list[int] = []

    def write(self) -> None:
        """See Writer."""
        producer: Producer | None = None
        number = 0
        while not self.stopping.is_set():
            try:
                if producer is None:
                    producer = self._start()
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce("transactional", b"%d" % number, partition=partition)
                if number % 3 == 2:
                    producer.abort_transaction(60)
                    self.aborted.append(number)
                else:
                    producer.commit_transaction(60)
                    self.acknowledged.append(number)
            except KafkaException:
                # It is unknown whether the transaction counts: the next producer's start decides.
                self.undecided.append(number)
                producer = None
            number += 1

    def _start(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": "writer",
                **CLIENT,
            }
        )
        while True:
            try:
                producer.init_transactions(60)
                return producer
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


def read_all(servers: str, topic: str) -> list[list[int]]:
    """Return what a read_committed consumer sees in each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **CLIENT,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[list[int]] = [[] for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    deadline = time.monotonic() + 120
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline
        for message in next_messages(consumer, 10_000, 0.2):
            partition = message.partition()
            assert partition is not None
            if message.error() is not None:
                at_end.add(partition)
            else:
                values[partition].append(int(message.value() or b""))
    consumer.close()
    return values


def tear(folder: Path, randomness: random.Random) -> None:
    """Append to logs what a crash in the middle of a write may leave."""
    for log in folder.glob("logs/*-*/*.log"):
        newest = max(log.parent.glob("*.log"))
        if log != newest or randomness.random() < 0.5:
            continue
        with log.open("r+b") as file:
            content = file.read()
            kind = randomness.randrange(3)
            if kind == 0:
                file.write(bytes(randomness.randrange(1, 5000)))
            elif kind == 1:
                file.write(randomness.randbytes(randomness.randrange(1, 500)))
            else:
                # The beginning of an earlier batch, as if it were sent again.
                file.write(content[: randomness.randrange(1, 300)])


def test_nothing_is_lost_or_doubled_however_often_the_broker_is_killed(
    broker: BrokerProcess,
) -> None:
    randomness = random.Random(4711)
    plain = IdempotentWriter(broker.bootstrap_servers)
    transactional = TransactionalWriter(broker.bootstrap_servers)
    plain.start()
    transactional.start()
    ready_s: list[float] = []
    for crash in range(CRASHES):
        plain.wait_for_more(randomness.randrange(1, 2000))
        if crash % 3 == 0:
            transactional.wait_for_more(1)
        time.sleep(randomness.uniform(0.0, 0.1))
        broker.kill()
        tear(broker.folder, randomness)
        began = time.monotonic()
        broker.start()
        ready_s.append(time.monotonic() - began)
    plain.stop()
    transactional.stop()

    stored = read_all(broker.bootstrap_servers, "plain")
    for index, values in enumerate(stored):
        assert values == sorted(set(values)), f"partition {index}: twice, or out of order"
    acknowledged = set(plain.acknowledged)
    assert acknowledged <= {value for values in stored for value in values}

    first, *others = read_all(broker.bootstrap_servers, "transactional")
    assert all(values == first for values in others), "a transaction is in some partitions only"
    assert first == sorted(set(first))
    assert set(transactional.acknowledged) <= set(first)
    assert not set(transactional.aborted) & set(first)
    assert set(first) <= set(transactional.acknowledged) | set(transactional.undecided)
    ready_s.sort()
    print(
        f"{CRASHES} crashes, {len(acknowledged)} records and {len(transactional.acknowledged)} "
        f"transactions acknowledged ({len(transactional.undecided)} undecided), ready again after "
        f"{ready_s[len(ready_s) // 2]:.2f} s in the median, {ready_s[-1]:.2f} s at most"
    )
