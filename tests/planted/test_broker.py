"""A broker whose background work fails says so and ends; nothing that it acknowledged is lost."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.consumers.running import Process
from tests.planted.planted import StartPlanted
from tests.ports import reserved_ports
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import Topic

_PARTITIONS = "broker_core.server.partitions."
STEPS = [
    _PARTITIONS + "flusher:Flusher._start_round:RuntimeError",
    _PARTITIONS + "flusher:Flusher._finish_round:KeyError",
    _PARTITIONS + "flusher:Flusher._flush:MemoryError",
    _PARTITIONS + "flusher:Flusher._flush:SystemExit",
    _PARTITIONS + "batch_opener:BatchOpener._step:MemoryError",
    _PARTITIONS + "batch_opener:BatchOpener._stepped:AttributeError",
    "broker_core.server.cluster.lifecycle:BrokerLifecycle._heard:ValueError",
    _PARTITIONS + "replicas:Replicas._check_isrs:CancelledError",
    "broker_core.server.network.listener:Listener._sweep:RuntimeError",
    "waylog.network.acceptor:Acceptor._accept:UnicodeError",
]

_COORDINATION = "broker_core.server.coordination."
COORDINATORS_STEPS = [
    _COORDINATION + "transactions:Transactions._store:KeyError",
    _COORDINATION + "transactions:Transactions._write_markers:MemoryError",
    _COORDINATION + "groups:Groups._append:AttributeError",
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.rpartition(".")[2])
def test_a_broker_whose_background_work_fails_ends_and_has_what_it_acknowledged(
    step: str, tmp_path: Path, start_planted: StartPlanted
) -> None:
    (port,) = reserved_ports(1)
    address = f"127.0.0.1:{port}"
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=PLAINTEXT://{address}\nlog.dirs={tmp_path / 'log'}\n"
        "log.flush.interval.messages=1\nreplica.lag.time.max.ms=1000\n"
    )
    words = ("broker", "--config", str(config))
    broker = start_planted(step, *words)
    broker.wait_for("serves")
    # With a codec of its own, so that large batches are opened beside the event loop.
    ensure_topics(address, [Topic("t", 1, {"compression.type": "zstd"})])
    acknowledged: list[int] = []
    producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "log_level": 0})

    def send(number: int) -> None:
        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                acknowledged.append(number)

        producer.produce("t", b"%d " % number + b"x" * 100_000, on_delivery=told)
        producer.poll(0.02)

    for number in range(3):
        send(number)
    producer.flush(30)
    assert acknowledged == [0, 1, 2]
    broker.fail_now()
    deadline = time.monotonic() + 60
    number = 3
    while not broker.has_ended and time.monotonic() < deadline:
        send(number)
        number += 1
        # New connections too.
        Producer({"bootstrap.servers": address, "log_level": 0}).poll(0)
    assert broker.wait() == 1
    assert "this process ends" in broker.output
    assert "nobody has thought of this" in broker.output
    assert "Traceback" in broker.output
    # In order, and without waiting for what has failed.
    assert "broker 0 has stopped" in broker.output

    again = Process(*words)
    try:
        again.wait_for("serves")
        consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        stored: set[int] = set()
        deadline = time.monotonic() + 60
        while not stored >= set(acknowledged) and time.monotonic() < deadline:
            stored |= {
                int((record.value() or b"").partition(b" ")[0])
                for record in consumer.consume(1000, 0.1)
                if record.error() is None
            }
        consumer.close()
        assert stored >= set(acknowledged)
    finally:
        again.stop()


@pytest.mark.parametrize("step", COORDINATORS_STEPS, ids=lambda step: step.rpartition(".")[2])
def test_a_broker_ends_whose_coordinator_fails_even_within_a_clients_request(
    step: str, tmp_path: Path, start_planted: StartPlanted
) -> None:
    (port,) = reserved_ports(1)
    address = f"127.0.0.1:{port}"
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=PLAINTEXT://{address}\nlog.dirs={tmp_path / 'log'}\n"
        "group.initial.rebalance.delay.ms=0\n"
    )
    broker = start_planted(step, "broker", "--config", str(config))
    broker.wait_for("serves")
    ensure_topics(address, [Topic("t", 1, {})])
    quiet = {"bootstrap.servers": address, "log_level": 0}
    producer = Producer({**quiet, "transactional.id": "id"})
    producer.init_transactions(30)
    broker.fail_now()
    consumer = Consumer({**quiet, "group.id": "g"})
    consumer.subscribe(["t"])
    deadline = time.monotonic() + 60
    while not broker.has_ended and time.monotonic() < deadline:
        with suppress(KafkaException):
            consumer.poll(0.1)
            producer.begin_transaction()
            producer.produce("t", b"1")
            producer.commit_transaction(1)
    consumer.close()
    assert broker.wait() == 1
    assert "this process ends" in broker.output
    assert "nobody has thought of this" in broker.output
    assert "Traceback" in broker.output
