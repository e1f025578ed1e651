"""The connectors in a worker, on a real broker and a real mosquitto, while all are stopped."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consumers.connect.mqtt.mqtt_source_task import MqttSourceTask
from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    create_topic,
    headers_of,
    produce,
    wait_until,
)
from tests.consumers.connect.mqtt.mosquitto_server import (
    PASSWORD,
    USER,
    WAIT_S,
    MosquittoServer,
    MqttPeer,
)

pytestmark = pytest.mark.early

MakeWorker = Callable[..., ConnectProcess]
VERSIONS = pytest.mark.parametrize("version", ["3.1.1", "5"])


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoServer]:
    server = MosquittoServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def topic(servers: str) -> str:
    name = f"mqtt-{uuid.uuid4().hex[:8]}"
    create_topic(servers, name, 3)
    return name


def source(mosquitto: MosquittoServer, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "MqttSource",
        "mqtt.server.uri": mosquitto.uri,
        "mqtt.topics": "owntracks/#",
        "mqtt.client.id": topic,
        "kafka.topic": topic,
        "value.converter": "ByteArrayConverter",
        **{name.replace("__", "."): text for name, text in more.items()},
    }


def sink(mosquitto: MosquittoServer, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "MqttSink",
        "topics": topic,
        "mqtt.server.uri": mosquitto.uri,
        "mqtt.client.id": topic,
        "mqtt.topic.format": "out/${key}",
        "consumer.override.group.id": topic,
        **{name.replace("__", "."): text for name, text in more.items()},
    }


def numbers(topic: Topic) -> list[int]:
    return sorted({int(each) for each in topic.values()})


@VERSIONS
def test_messages_become_records(
    servers: str, make_worker: MakeWorker, mosquitto: MosquittoServer, topic: str, version: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    peer = MqttPeer(mosquitto)
    peer.publish("owntracks/anna/retained", b"old", retain=True)
    worker.create("in", source(mosquitto, topic, mqtt__version=version))
    worker.wait_for("connected to MQTT server")
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["old"], "the retained message", worker)
    peer.publish("owntracks/anna/phone", b"\x00\xff")
    peer.publish("elsewhere", b"no")
    wait_until(lambda: len(records.read()) == 2, "two records", worker)
    by_key = {each.key(): each for each in records.records}
    assert by_key[b"owntracks/anna/phone"].value() == b"\x00\xff"
    headers = headers_of(by_key[b"owntracks/anna/retained"])
    assert headers == {"mqtt.qos": "1", "mqtt.retained": "true", "mqtt.duplicate": "false"}
    peer.close()
    records.close()


def test_a_message_that_is_too_large_for_the_log_stops_no_other(
    servers: str, make_worker: MakeWorker, mosquitto: MosquittoServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    peer = MqttPeer(mosquitto)
    peer.publish("owntracks/anna/retained", b"before", retain=True)
    worker.create("in", source(mosquitto, topic, errors__tolerance="all"))
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["before"], "the subscription", worker)
    peer.publish("owntracks/anna/big", b"x" * 1_200_000)
    peer.publish("owntracks/anna/phone", b"after")
    wait_until(lambda: "after" in records.values(), "the message behind it", worker)
    assert sorted(records.values()) == ["after", "before"]
    worker.wait_for(f"leaves out a record that topic {topic} does not take")
    peer.close()
    records.close()


@VERSIONS
def test_no_message_is_lost_whatever_is_killed(
    servers: str, make_worker: MakeWorker, mosquitto: MosquittoServer, topic: str, version: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    config = source(mosquitto, topic, mqtt__version=version, mqtt__max__in__flight="50")
    worker.create("in", config)
    records = Topic(servers, topic)
    peer = MqttPeer(mosquitto)
    # It subscribes after it has connected; what is retained comes with the subscription.
    peer.publish("owntracks/anna/phone", b"0", retain=True)
    wait_until(lambda: numbers(records) == [0], "the subscription", worker)
    sent = 1
    for _ in range(3):
        for _ in range(150):
            peer.publish("owntracks/anna/phone", str(sent).encode())
            sent += 1
        worker.kill()
        for _ in range(150):
            # While the worker is away the server keeps them.
            peer.publish("owntracks/anna/phone", str(sent).encode())
            sent += 1
        worker.start()
        worker.create("in", config)
    wait_until(lambda: numbers(records) == list(range(sent)), f"{sent} records", worker)
    mosquitto.stop()
    worker.wait_for("connection lost")
    mosquitto.start()
    wait_until(lambda: worker.output.count("connected to MQTT") >= 5, "a connection", worker)
    last = MqttPeer(mosquitto)
    last.publish("owntracks/anna/phone", str(sent).encode())
    wait_until(lambda: numbers(records)[-1] == sent, "the last record", worker)
    peer.close()
    last.close()
    records.close()


def test_a_record_that_is_left_out_is_acknowledged(mosquitto: MosquittoServer) -> None:
    task = MqttSourceTask()
    task.start(source(mosquitto, "left-out", mqtt__max__in__flight="5"))
    peer = MqttPeer(mosquitto)
    try:
        wait_until_subscribed(task, peer)
        for number in range(20):
            peer.publish("owntracks/a/b", str(number).encode())
        # The server sends the sixth when one of five is acknowledged.
        assert polled(task, 20) == list(range(20))
    finally:
        peer.close()
        task.stop()


def wait_until_subscribed(task: MqttSourceTask, peer: MqttPeer) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        peer.publish("owntracks/a/b", b"-1")
        records = task.poll()
        if records:
            for record in records:
                task.commit_record(record, None)
            return
    pytest.fail("the task has not subscribed")


def polled(task: MqttSourceTask, count: int) -> list[int]:
    """Leave out so many records, as a worker does whose transforms drop them; return them."""
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        for record in task.poll() or ():
            task.commit_record(record, None)
            if int(record.value) >= 0:
                found.append(int(record.value))
    return found


@VERSIONS
def test_records_are_published(
    servers: str, make_worker: MakeWorker, mosquitto: MosquittoServer, topic: str, version: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    peer = MqttPeer(mosquitto, "out/#")
    worker.create(
        "out", sink(mosquitto, topic, mqtt__version=version, mqtt__retained__enabled="true")
    )
    values: list[bytes | None] = [str(number).encode() for number in range(100)]
    produce(servers, topic, values, key=b"anna/phone")
    wait_until(lambda: len(peer.received) == 100, "100 messages", worker)
    assert peer.received == [("out/anna/phone", value, False) for value in values]
    late = MqttPeer(mosquitto, "out/#")
    wait_until(lambda: late.received == [("out/anna/phone", b"99", True)], "it is retained", worker)
    # An erased device: what the server retains of it goes.
    produce(servers, topic, [None], key=b"anna/phone")
    wait_until(lambda: peer.received[-1][1] == b"", "the tombstone", worker)
    later = MqttPeer(mosquitto, "out/#")
    produce(servers, topic, [b"x"], key=b"bert/bike")
    wait_until(lambda: later.received == [("out/bert/bike", b"x", False)], "nothing else", worker)
    for each in (peer, late, later):
        each.close()


@pytest.mark.long
def test_nothing_is_lost_while_the_server_or_the_worker_is_away(
    servers: str, make_worker: MakeWorker, mosquitto: MosquittoServer, topic: str
) -> None:
    worker = make_worker(servers, **{"consumer.session.timeout.ms": "6000"})
    worker.start()
    config = sink(mosquitto, topic)
    worker.create("out", config)
    received: set[int] = set()
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        values: list[bytes | None] = [str(sent + number).encode() for number in range(count)]
        produce(servers, topic, values, key=b"k")
        sent += count

    for _ in range(2):
        peer = MqttPeer(mosquitto, "out/#")
        send(200)

        def all_came(peer: MqttPeer = peer) -> bool:
            received.update(int(payload) for _, payload, _ in peer.received)
            return received == set(range(sent))

        wait_until(all_came, f"{sent} messages", worker)
        peer.close()
        mosquitto.stop()
        send(200)
        worker.wait_for("records come again: MQTT server")
        worker.kill()
        mosquitto.start()
        peer = MqttPeer(mosquitto, "out/#")
        worker.start()
        worker.create("out", config)
        wait_until(lambda: all_came(peer), f"{sent} messages", worker)  # noqa: B023
        peer.close()


def test_a_record_that_makes_no_message_goes_to_the_dead_letters(
    servers: str, make_worker: MakeWorker, mosquitto: MosquittoServer, topic: str
) -> None:
    worker = make_worker(servers)
    worker.start()
    letters = f"letters-{topic}"
    worker.create(
        "out",
        sink(
            mosquitto,
            topic,
            errors__tolerance="all",
            errors__deadletterqueue__topic__name=letters,
            errors__deadletterqueue__topic__replication__factor="1",
            errors__deadletterqueue__context__headers__enable="true",
        ),
    )
    peer = MqttPeer(mosquitto, "out/#")
    produce(servers, topic, [b"poison"], key=b"a/#", partition=0)
    produce(servers, topic, [b"good"], key=b"a/b", partition=0)
    wait_until(lambda: peer.received == [("out/a/b", b"good", False)], "the good one", worker)
    dead = Topic(servers, letters)
    wait_until(lambda: dead.values() == ["poison"], "the dead letter", worker)
    message = headers_of(dead.records[0])["__connect.errors.exception.message"]
    assert message == "the key makes no MQTT topic: 'out/a/#'"
    dead.close()
    peer.close()


def test_a_server_that_refuses_the_client_fails_the_task(
    servers: str, make_worker: MakeWorker, tmp_path: Path, topic: str
) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    server = MosquittoServer(folder, password=True)
    server.start()
    worker = make_worker(servers)
    worker.start()
    login: dict[str, Any] = {"mqtt__username": USER}
    try:
        worker.create("in", source(server, topic, mqtt__password="s3cr3t-wrong", **login))
        worker.await_states("in", "RUNNING", "FAILED")
        assert "refuses the connection" in worker.trace("in")
        worker.create("good", source(server, topic, mqtt__password=PASSWORD, **login))
        worker.wait_for("connected to MQTT server")
        worker.create("out", sink(server, topic, mqtt__password="s3cr3t-wrong", **login))
        produce(servers, topic, [b"x"], key=b"k")
        worker.await_states("out", "RUNNING", "FAILED")
        assert "s3cr3t" not in worker.output + worker.trace("in") + worker.trace("out")
        assert PASSWORD not in worker.output
    finally:
        worker.stop()
        server.stop()
