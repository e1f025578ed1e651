"""A gateway whose background work fails says so and ends; no fix that it acknowledged is lost."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.consumers.running import Broker, await_condition
from tests.planted.planted import StartPlanted
from tests.ports import reserved_ports
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import LOCATION, TOPICS
from waylog.messages import decode_fix

STEPS = [
    "waylog.kafka.batch_producer:BatchProducer._flush:RuntimeError",
    "waylog.kafka.batch_producer:BatchProducer._send_to:MemoryError",
    "waylog.kafka.batch_producer:BatchProducer._batch_answered:KeyError",
    "waylog.kafka.batch_producer:BatchProducer._look_after:AttributeError",
    "waylog.kafka.batch_reader:BatchReader._take:CancelledError",
    "gateway.mqtt.listening.listener:MqttServer._tick:RuntimeError",
    "gateway.http.plain.plain_server:PlainServer._step:RuntimeError",
    "waylog.network.acceptor:Acceptor._accept:UnicodeError",
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    ensure_topics(broker.address, [replace(each, partitions=1) for each in TOPICS])
    yield broker
    broker.process.stop()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.rpartition(".")[2])
def test_a_gateway_whose_background_work_fails_ends_and_has_lost_nothing(
    step: str, broker: Broker, tmp_path: Path, start_planted: StartPlanted
) -> None:
    http_port, mqtt_port = reserved_ports(2)
    gateway = start_planted(
        *(step, "gateway", "--open"),
        *("--bootstrap-servers", broker.address, "--data", str(tmp_path / "gateway")),
        *("--http", f"127.0.0.1:{http_port}", "--mqtt", f"127.0.0.1:{mqtt_port}"),
    )
    gateway.wait_for("gateway ready")
    acknowledged: set[float] = set()

    def send(number: int) -> None:
        fix = {"lat": 47 + number / 1000, "lon": 9.5, "time": 1_700_000_000_000 + number}
        connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=1)
        try:
            body = json.dumps({"device": "phone", **fix})
            headers = {"Content-Type": "application/json", "Authorization": "Basic YW5uOg=="}
            connection.request("POST", "/v1/positions", body, headers)
            answer = connection.getresponse()
            if answer.status == 200 and json.loads(answer.read())["accepted"] == 1:
                acknowledged.add(fix["time"])
        except OSError:
            pass
        finally:
            connection.close()

    for number in range(3):
        send(number)
    assert len(acknowledged) == 3
    gateway.fail_now()
    deadline = time.monotonic() + 60
    while not gateway.has_ended and time.monotonic() < deadline:
        send(number := number + 1)
    assert gateway.wait() == 1
    assert "this process ends" in gateway.output
    assert "Traceback" in gateway.output

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    consumer.assign([TopicPartition(LOCATION, 0, 0)])
    stored: set[float] = set()

    def all_are_stored() -> bool:
        for record in consumer.consume(1000, 0.1):
            if record.error() is None:
                stored.add(decode_fix(record.value() or b"").time)
        return stored >= acknowledged

    await_condition(all_are_stored, 60, "every acknowledged fix is in the log")
    consumer.close()
