"""Values of the log are sealed, and a consumer was started without their key."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.consumers.connect.connect_process import ConnectProcess, lines_of
from tests.consumers.running import WAYLOG, Broker, Process, await_condition
from tests.consumers.streams.harness import make_fix
from tests.environments import own_environment
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import ADDRESS, ERROR, EVENT, GEOFENCE, LOCATION, VALUE_KEY_TOPIC
from waylog.messages import decode_address, decode_rejected, encode
from waylog.sealing.sealing import ENVIRONMENT, MAGIC
from waylog.sealing.value_encryption import ensure_master_key, load_master_key
from waylog.sealing.value_keys import KeyRing

MISSING: Final = (
    f"the log's values are sealed: {ENVIRONMENT} has to name the file of the master key"
)
DEVICE: Final = b"ann/phone"


class Log:
    """A log in which values are sealed, or not."""

    def __init__(self, servers: str, key_file: Path) -> None:
        ensure_master_key(key_file)
        self.servers = servers
        self.key_file = key_file
        self.has_key = {ENVIRONMENT: str(key_file)}
        ensure_topics(servers)
        ensure_topics(servers, [VALUE_KEY_TOPIC])
        self._ring = KeyRing(servers, load_master_key(key_file))
        self._producer = Producer(producer_config(servers, "tests"))

    def close(self) -> None:
        self._ring.close()

    def append(self, value: bytes, topic: str = LOCATION, key: bytes = DEVICE) -> None:
        self._producer.produce(topic, value, key)
        assert self._producer.flush(60) == 0

    def sealed(self, value: bytes, topic: str = LOCATION, key: bytes = DEVICE) -> bytes:
        return self._ring.seal_value(topic, value, key)

    def send(self, *numbers: int, sealed: bool = True) -> None:
        """Append fixes of one device, those of even numbers too fast."""
        for number in numbers:
            value = encode(make_fix(10 * number, device=DEVICE.decode(), speed=15.0 * (number % 2)))
            self.append(self.sealed(value) if sealed else value)

    def opened(self, topic: str) -> list[bytes]:
        return [
            each.value() or b""
            for each in self._ring.open_messages(list(read_topic(self.servers, topic)))
        ]

    def committed(self, group: str, topic: str = LOCATION) -> int:
        """Return how many records of a topic a group has done with."""
        consumer = Consumer(consumer_config(self.servers, "tests", group))
        try:
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            wanted = [TopicPartition(topic, number) for number in partitions]
            return sum(max(0, each.offset) for each in consumer.committed(wanted, timeout=60))
        finally:
            consumer.close()


@pytest.fixture
def log(broker: Broker, tmp_path: Path) -> Iterator[Log]:
    log = Log(broker.address, tmp_path / "master.key")
    yield log
    log.close()


@pytest.fixture
def start(broker: Broker) -> Iterator[Callable[..., Process]]:
    """Give a function that starts a command; what still runs at the end is stopped."""
    started: list[Process] = []

    def begin(*words: str, **options: Any) -> Process:
        process = Process(*words, "--bootstrap-servers", broker.address, **options)
        started.append(process)
        return process

    yield begin
    for each in started:
        each.stop()


SPEED: Final = ("streams", "run", "speed", "--property", "limit_kmh=36")


def is_refused(process: Process, log: Log, group: str) -> None:
    """Check that a process ends, says why, and has passed no record over."""
    assert process.wait() == 2, process.output
    assert MISSING in process.output
    assert "Traceback" not in process.output
    assert list(read_topic(log.servers, ERROR)) == []
    assert log.committed(group) == 0


def test_a_topology_ends_and_goes_on_with_the_key(log: Log, start: Callable[..., Process]) -> None:
    log.send(1, 2, 3)
    is_refused(start(*SPEED), log, "streams-speed")
    # One damaged value keeps none of the others back, if there is a key.
    damaged = bytearray(log.sealed(b"{}"))
    damaged[-1] ^= 1
    log.append(bytes(damaged))
    log.send(4, 5)
    process = start(*SPEED, environment=log.has_key)
    await_condition(lambda: log.opened(EVENT), 60, "an event")
    await_condition(lambda: log.opened(ERROR), 60, "the dead letter")
    await_condition(lambda: log.committed("streams-speed") == 6, 60, "the end")
    assert process.stop() == 0
    assert len(log.opened(ERROR)) == 1


def test_a_copy_ends_too(log: Log, start: Callable[..., Process]) -> None:
    log.send(1, 2)
    # Nothing has to be asked of a registry until the first value can be read.
    properties = {
        "from": LOCATION, "to": "copied",
        "schema.registry.url": "http://127.0.0.1:9",
    }  # fmt: skip
    words = [word for name in properties for word in ("--property", f"{name}={properties[name]}")]
    group = f"streams-convert-{LOCATION}-copied"
    process = start("streams", "run", "convert", *words)
    is_refused(process, log, group)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_sealing_that_begins_later_ends_a_resolver(
    log: Log, start: Callable[..., Process], guarantee: str
) -> None:
    process = start("resolver", "--processing-guarantee", guarantee)
    process.wait_for("resolver ready")
    log.send(1, 2, sealed=False)
    await_condition(lambda: list(read_topic(log.servers, ADDRESS)), 60, "an address")
    await_condition(lambda: log.committed("resolver") == 2, 60, "both are done")
    log.send(3)
    assert process.wait() == 2, process.output
    assert MISSING in process.output
    assert list(read_topic(log.servers, ERROR)) == []
    assert log.committed("resolver") == 2
    before = len(list(read_topic(log.servers, ADDRESS)))
    process = start("resolver", environment=log.has_key)
    await_condition(lambda: log.committed("resolver") == 3, 60, "the end")
    assert len([decode_address(each) for each in log.opened(ADDRESS)]) >= before
    assert list(read_topic(log.servers, ERROR)) == []


def test_what_only_looks_sealed_is_a_dead_letter(log: Log, start: Callable[..., Process]) -> None:
    foreign = MAGIC + b"12345678 of another program, or of somebody who wants readers to stop"
    log.sealed(b"{}")  # the log has a key, as that of a forwarding
    log.append(foreign)
    log.send(1, 2, sealed=False)
    process = start(*SPEED)
    await_condition(lambda: log.committed("streams-speed") == 3, 60, "the end")
    assert process.is_running
    (letter,) = list(read_topic(log.servers, ERROR))
    assert decode_rejected(letter.value() or b"").raw == foreign


def test_a_sealed_state_is_not_taken_for_none(log: Log, start: Callable[..., Process]) -> None:
    log.send(1, 2, 3)
    process = start(*SPEED, environment=log.has_key)
    await_condition(lambda: log.committed("streams-speed") == 3, 60, "the end")
    assert process.stop() == 0
    process = start(*SPEED)
    assert process.wait() == 2, process.output
    assert MISSING in process.output
    assert log.committed("streams-speed") == 3


def test_sealed_definitions_are_not_passed_over(log: Log, start: Callable[..., Process]) -> None:
    add = ("streams", "geofences", "add", "home", "--user", "ann", "--circle", "47,9,100")
    assert start(*add, environment=log.has_key).wait() == 0
    log.send(1, 2, sealed=False)
    is_refused(start("streams", "run", "geofences"), log, "streams-geofences")
    for words in (("list",), ("add", "work", "--user", "ann", "--circle", "47,9,100")):
        process = start("streams", "geofences", *words)
        assert process.wait() == 2
        assert MISSING in process.output
    # Where somebody lives is not written in the clear beside it.
    (record,) = list(read_topic(log.servers, GEOFENCE))
    assert (record.value() or b"").startswith(MAGIC)


def test_re_resolving_ends(log: Log, start: Callable[..., Process]) -> None:
    log.send(1, 2)
    process = start("resolver", "--from-earliest", "--topic", "address-again")
    assert process.wait() == 2, process.output
    assert MISSING in process.output
    assert log.committed("re-resolve-address-again") == 0


def test_a_group_of_the_console_consumes_nothing(log: Log) -> None:
    log.send(1)
    command: Sequence[str] = [*WAYLOG, "consume", LOCATION, "--bootstrap-servers", log.servers]
    command = [*command, "--max", "1"]

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*command, *words], env=own_environment() | environment,
            capture_output=True, check=False, timeout=60,
        )  # fmt: skip

    done = run("--group", "g", "--from", "beginning")
    assert (done.returncode, done.stdout) == (2, b"")
    assert MISSING in done.stderr.decode()
    assert log.committed("g") == 0
    # To be looked at: it counts nowhere.
    done = run("--from", "beginning", "--format", "%s")
    assert done.returncode == 0
    assert done.stdout.startswith(MAGIC)
    assert b'"id"' in run("--group", "g", "--from", "beginning", **log.has_key).stdout


def test_a_sink_fails_that_reads_values_and_one_that_passes_bytes_on_does_not(
    log: Log, tmp_path: Path
) -> None:
    log.send(1, 2, sealed=False)
    out, raw = tmp_path / "out.txt", tmp_path / "raw.txt"
    folder = tmp_path / "worker"
    folder.mkdir()
    worker = ConnectProcess(folder, log.servers)
    worker.start()
    try:
        sink = {
            "connector.class": "FileStreamSink", "topics": LOCATION, "errors.tolerance": "all",
            "consumer.override.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": "letters",
            "errors.deadletterqueue.topic.replication.factor": "1",
        }  # fmt: skip
        worker.create("out", {**sink, "file": str(out)})
        await_condition(lambda: len(lines_of(out)) == 2, 60, "plain values")
        await_condition(lambda: log.committed("connect-out") == 2, 60, "their offsets")
        log.send(3)
        worker.await_states("out", "RUNNING", "FAILED")
        assert "the log's values are sealed, and connectors do not open them" in worker.trace("out")
        assert len(lines_of(out)) == 2
        assert log.committed("connect-out") == 2
        assert list(read_topic(log.servers, "letters")) == []
        converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
        worker.create("raw", {**sink, "file": str(raw), "value.converter": converter})
        await_condition(lambda: log.committed("connect-raw") == 3, 60, "all values")
        assert worker.states("raw") == ["RUNNING", "RUNNING"]
    finally:
        worker.stop()
