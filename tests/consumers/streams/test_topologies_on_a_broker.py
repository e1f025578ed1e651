"""Topologies as processes of their own on a real broker: kill -9, another machine, bad records."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from consumers.streams.properties import Properties
from consumers.streams.speed import Speed
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.streams.harness import Driven, events_of, make_fix
from tests.odd_records import MALFORMED_VALUES, append_with_odd_header
from waylog.history.erasures import append_erasures
from waylog.kafka.clients import consumer_config, producer_config
from waylog.kafka.topics import ERROR, EVENT, LOCATION
from waylog.messages import Event, Fix, decode_event, decode_rejected, encode
from waylog.observability.telemetry import now_ms

StartTopology = Callable[..., Process]
CHANGELOG = "streams-speed-changelog"


class Reader:
    """Reads a topic from its beginning, and goes on with new records."""

    def __init__(self, servers: str, topic: str) -> None:
        self.records: list[Any] = []
        self._consumer = Consumer(consumer_config(servers, "reader", "reader"))
        partitions = self._consumer.list_topics(topic, timeout=60).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def read(self) -> list[Any]:
        self.records += [
            record for record in self._consumer.consume(5000, 0.05) if record.error() is None
        ]
        return self.records

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def reader(broker: Broker) -> Iterator[Callable[[str], Reader]]:
    readers: list[Reader] = []

    def open_reader(topic: str) -> Reader:
        readers.append(Reader(broker.address, topic))
        return readers[-1]

    yield open_reader
    for each in readers:
        each.close()


class Fleet:
    """Sends fixes of some devices, some of them late or twice."""

    def __init__(self, servers: str, count: int = 100) -> None:
        self.fixes: list[Fix] = []
        self._random = random.Random(7)
        self._names = [f"user{number}/car" for number in range(count)]
        self._producer = Producer(producer_config(servers, "fleet"))
        self._round = 0

    def send(self, rounds: int) -> None:
        """Send so many fixes of each device; wait until all are acknowledged."""
        for _ in range(rounds):
            self._round += 1
            for name in self._names:
                late = self._random.randrange(50) if self._random.random() < 0.1 else 0
                speed = self._random.choice([1.0, 5.0, 9.5, 11.0, 15.0])
                fix = make_fix(10 * self._round - late, device=name, speed=speed)
                for _ in range(self._random.choice([1, 1, 1, 2])):
                    self.fixes.append(fix)
                    self.append(encode(fix), name.encode())
        self.flush()

    def append(self, value: bytes | None, key: bytes | None) -> None:
        self._producer.produce(LOCATION, value, key)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def truth(self) -> dict[str, Event]:
        """Return the events that a batch job computes out of the same fixes."""
        driven = Driven(Speed(Properties({"limit_kmh": "36"})))
        # A fix is refused that is ahead of the clock, and the processes' clock is the real one.
        driven.now_ms = now_ms()
        return {each.id: each for each in events_of(driven.send(*self.fixes))}


def events(reader: Reader) -> list[Event]:
    return [decode_event(record.value()) for record in reader.read()]


def test_events_are_those_of_a_batch_job_and_a_clean_stop_repeats_none(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    fleet = Fleet(broker.address)
    fleet.send(5)
    topology = start_topology("speed", "--property", "limit_kmh=36")
    found = reader(EVENT)
    fleet.send(5)
    await_condition(lambda: len(events(found)) >= len(fleet.truth()), 60, "all events")
    assert topology.stop() == 0
    start_topology("speed", "--property", "limit_kmh=36")
    fleet.send(2)
    truth = fleet.truth()
    await_condition(lambda: len(events(found)) >= len(truth), 60, "all events")
    assert sorted(each.id for each in events(found)) == sorted(truth)
    assert {each.id: each for each in events(found)} == truth


@pytest.mark.parametrize(
    ("guarantee", "kills"),
    [
        ("at_least_once", 1),
        ("exactly_once_v2", 1),
        pytest.param("at_least_once", 6, marks=pytest.mark.long),
        pytest.param("exactly_once_v2", 6, marks=pytest.mark.long),
    ],
)
def test_after_kill_9_there_is_every_event_and_repeats_have_equal_ids(
    broker: Broker,
    start_topology: StartTopology,
    reader: Callable[[str], Reader],
    guarantee: str,
    kills: int,
) -> None:
    words = ["speed", "--property", "limit_kmh=36", "--processing-guarantee", guarantee]
    fleet = Fleet(broker.address)
    fleet.send(1)
    found = reader(EVENT)
    for _ in range(kills):
        topology = start_topology(*words)
        before = len(events(found))
        fleet.send(30)
        # Killed somewhere amid the records, not before the first and not after the last one.
        await_condition(lambda: len(events(found)) > before, 60, "some events")  # noqa: B023
        topology.stop(signal.SIGKILL)
    start_topology(*words)
    fleet.send(1)
    truth = fleet.truth()
    await_condition(lambda: {each.id for each in events(found)} >= truth.keys(), 60, "all events")
    repeats = Counter(each.id for each in events(found))
    assert repeats.keys() == truth.keys()
    if guarantee == "exactly_once_v2":
        assert set(repeats.values()) == {1}
    assert {each.id: each for each in events(found)} == truth


def test_several_topologies_run_in_one_process(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    fleet = Fleet(broker.address, 20)
    fleet.send(5)
    words = ("speed", "trips", "silence", "--property", "speed.limit_kmh=36")
    topology = start_topology(*words)
    # They are ready in any order.
    for name in ("speed", "trips", "silence"):
        line = f"topology {name} ready"
        await_condition(lambda: line in topology.output, 60, line)  # noqa: B023
    found, states = reader(EVENT), reader("streams-trips-changelog")
    truth = fleet.truth()
    await_condition(lambda: len(events(found)) >= len(truth), 60, "all events of speeding")
    assert {each.id: each for each in events(found)} == truth
    await_condition(lambda: len({each.key() for each in states.read()}) == 20, 60, "all states")
    assert topology.stop() == 0
    topology.wait_for("topology silence stopped: ")


def test_records_that_are_no_fixes_go_to_topic_error_and_stop_nobody(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    topology = start_topology("speed", "--property", "limit_kmh=36")
    fleet = Fleet(broker.address, 1)
    good = encode(make_fix(0, device="user0/car", speed=1.0))
    for value in (
        *MALFORMED_VALUES,
        None,
        b"",
        good.replace(b"47.14", b"1e999"),
        good.replace(b'"time":', b'"time":9' + b"9" * 30),
        b"[" * 2000,
    ):
        fleet.append(value, b"user0/car")
    fleet.append(encode(make_fix(1, device="user0/car", speed=1e308)), b"\xff\xfe")
    fleet.flush()
    append_with_odd_header(
        broker.address, LOCATION, encode(make_fix(2, device="user0/car", speed=20.0)), b"user0/car"
    )
    found, errors = reader(EVENT), reader(ERROR)
    await_condition(lambda: events(found), 60, "the event of the last record")
    await_condition(lambda: len(errors.read()) >= 8, 60, "the refused records")
    assert {decode_rejected(each.value()).source for each in errors.records} == {"speed"}
    assert topology.stop() == 0


def test_an_erased_device_is_forgotten_also_in_the_changelog(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    first = start_topology("speed", "--property", "limit_kmh=36")
    fleet = Fleet(broker.address, 4)
    fleet.send(1)
    states = reader(CHANGELOG)

    def known() -> dict[bytes, bytes | None]:
        return {record.key(): record.value() for record in states.read()}

    await_condition(lambda: len(known()) == 4, 60, "the states")
    append_erasures(broker.address, ["user1/car"], 2_000_000_000_000)
    await_condition(lambda: known()[b"user1/car"] is None, 60, "the tombstone")
    assert first.stop() == 0
    # Also one that was erased while no process ran.
    append_erasures(broker.address, ["user2/car"], 2_000_000_000_000)
    start_topology("speed", "--property", "limit_kmh=36")
    await_condition(lambda: known()[b"user2/car"] is None, 60, "the tombstone")
    assert known()[b"user0/car"] is not None
