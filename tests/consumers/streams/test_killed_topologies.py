"""Each topology on a log: kill -9 amid the records, and what its results are then.

The log is an Apache Kafka (-m kafka), or our broker for one of them. Values are sealed or plain.
"""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from confluent_kafka import Producer

from consumers.streams import registry
from consumers.streams.definitions import write_definitions
from consumers.streams.processor import application_id, changelog_topic
from consumers.streams.properties import Properties
from tests.apache_kafka import apache_kafka
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.streams.chain import chain_of
from tests.consumers.streams.harness import make_fix
from tests.consumers.streams.test_topologies_on_a_broker import Reader
from waylog.friendships import Friendship, friendship_key
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import (
    EVENT,
    FRIENDSHIP_TOPIC,
    GEOFENCE_TOPIC,
    HEAT_MAP,
    LOCATION,
    TRIP,
    TRIP_DAY,
)
from waylog.messages import Fix, decode_event, encode
from waylog.observability.telemetry import now_ms
from waylog.sealing.sealing import ENVIRONMENT, is_sealed, is_sealed_topic, shared_key_ring
from waylog.sealing.value_encryption import ensure_master_key

pytestmark = pytest.mark.timeout(600)

#: By topology: its properties, and the topics of its results.
TOPOLOGIES: Final[dict[str, tuple[dict[str, str], tuple[str, ...]]]] = {
    "geofences": ({}, (EVENT,)),
    "heat-map": ({"devices_min": "1", "update_s": "1"}, (HEAT_MAP,)),
    # Half of the fixes are a backlog, in which positions come hours late; a begin is told when
    # nothing earlier has come for some seconds.
    "meetings": ({"idle_s": "5", "least_s": "120", "wait_s": "100000"}, (EVENT,)),
    "silence": ({"idle_s": "100000", "unlearned_s": "1800"}, (EVENT,)),
    "speed": ({"limit_kmh": "36"}, (EVENT,)),
    "trips": ({}, (TRIP, TRIP_DAY)),
}
FENCE: Final = b'{"circle":{"lat":47.0,"lon":9.0,"radius":900},"dwell":300}'
PAIRS: Final = 12
#: Fixes of each device, 30 seconds apart.
ROUNDS: Final = 480
_METRE: Final = 1 / 111_195


def fixes() -> list[Fix]:
    """Return the fixes of pairs of users who walk together; each is silent for an hour once."""
    chance = random.Random(5)
    found: list[Fix] = []
    places = [(chance.gauss(0, 2000), chance.gauss(0, 2000)) for _ in range(PAIRS)]
    for number in range(ROUNDS):
        moves = chance.random() < 0.8
        for pair in range(PAIRS):
            north, east = places[pair]
            step = chance.uniform(50, 400) if moves and (number // 60 + pair) % 3 else 2.0
            way = chance.uniform(0, 0.5) + pair
            north, east = north + step * math.cos(way), east + step * math.sin(way)
            places[pair] = north, east
            for user in (2 * pair, 2 * pair + 1):
                if 120 + 10 * pair < number < 240 + 10 * pair:
                    continue
                lat = 47.0 + (north + 5 * (user % 2)) * _METRE
                found.append(
                    make_fix(
                        30 * number + 0.1 * user,
                        lat,
                        9.0 + east * _METRE / math.cos(math.radians(lat)),
                        device=f"u{user}/x",
                        accuracy=5.0,
                    )
                )
    return found


#: Users who are friends from the beginning on.
FRIENDS: Final = [(f"u{2 * pair}", f"u{2 * pair + 1}", 0) for pair in range(PAIRS)]


def befriended() -> dict[str, bytes | None]:
    return {
        friendship_key(*names): msgspec.json.encode(Friendship(since))
        for one, other, since in FRIENDS
        for names in ((one, other), (other, one))
    }


def result(topic: str, key: bytes, value: bytes) -> tuple[tuple[Any, ...], Any]:
    """Return what tells a result from others, and the result."""
    if topic != EVENT:
        return (topic, key), msgspec.json.decode(value)
    event = decode_event(value)
    if event.type == "meeting":
        # In a backlog, positions of different cells come in no order: who and what is the same.
        members = event.attributes or {}
        return (event.device, members["with"], members["transition"]), event.type
    return (topic, event.id), (event.device, event.type, event.time, event.attributes)


def truth(name: str, sent: list[Fix]) -> dict[Any, Any]:
    """Return the results of the topology without a log, in one go."""
    chain = chain_of(name, TOPOLOGIES[name][0], {"*/zoo": FENCE}, FRIENDS)
    chain.now_ms = now_ms()
    for fix in sent:
        chain.send(fix)
    for _ in range(5):
        chain.pass_time()
    return dict(result(each.topic, each.key or b"", each.value) for each in chain.outputs)


class Case(NamedTuple):
    """A topology, its guarantee, whether values are sealed, and the log."""

    name: str
    guarantee: str
    sealed: bool = False
    log: str = "apache-kafka"

    def __str__(self) -> str:
        return "-".join([self.name, self.guarantee, *["sealed"] * self.sealed, self.log])


CASES: Final = [
    Case("geofences", "exactly_once_v2", sealed=True, log="waylog"),
    *(
        pytest.param(Case(name, "exactly_once_v2", log="waylog"), marks=pytest.mark.long)
        for name in TOPOLOGIES
    ),
    *(
        pytest.param(Case(name, guarantee, sealed), marks=pytest.mark.kafka)
        for name in TOPOLOGIES
        for guarantee, sealed in (
            ("at_least_once", False), ("exactly_once_v2", False), ("exactly_once_v2", True),
        )
    ),
]  # fmt: skip


@contextmanager
def running_log(name: str, folder: Path) -> Iterator[str]:
    """Run a log; yield its bootstrap servers."""
    if name == "apache-kafka":
        with apache_kafka() as servers:
            yield servers
        return
    broker = Broker(folder)
    try:
        yield broker.address
    finally:
        broker.process.stop()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_after_kill_9_its_results_are_those_of_a_run_in_one_go(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = case.name
    properties, topics = TOPOLOGIES[name]
    if case.sealed:
        path = tmp_path / "master.key"
        ensure_master_key(path)
        monkeypatch.setenv(ENVIRONMENT, str(path))
    with running_log(case.log, tmp_path) as servers:
        ensure_topics(servers)
        keys = shared_key_ring(servers)
        write_definitions(servers, FRIENDSHIP_TOPIC, befriended(), "a friendship")
        write_definitions(servers, GEOFENCE_TOPIC, {"*/zoo": FENCE}, "a geofence")
        words = ["streams", "run", name, "--bootstrap-servers", servers]
        words += ["--processing-guarantee", case.guarantee]
        for text in properties.items():
            words += ["--property", "=".join(text)]
        sent = fixes()
        producer = Producer(producer_config(servers, "fleet"))

        def send(some: list[Fix]) -> None:
            for fix in some:
                value = encode(fix)
                if keys is not None:
                    value = keys.seal_value(LOCATION, value, fix.device.encode())
                producer.produce(LOCATION, value, fix.device)
                producer.poll(0)
            assert producer.flush(60) == 0

        processor = registry.find(name)(Properties(properties)).processors()[0]
        changelog = changelog_topic(application_id(processor))
        first = Process(*words)
        readers: list[Reader] = []
        try:
            first.wait_for(r"topology \S+ ready")
            send(sent[: len(sent) // 2])
            states = Reader(servers, changelog)
            readers.append(states)
            await_condition(states.read, 60, "a state in the changelog")
            assert first.stop(signal.SIGKILL) == -signal.SIGKILL
            second = Process(*words)
            try:
                second.wait_for(r"topology \S+ ready")
                send(sent[len(sent) // 2 :])
                expected = truth(name, sent)
                assert expected
                of_results = [Reader(servers, topic) for topic in topics]
                readers += of_results

                def found() -> dict[Any, Any]:
                    records = [record for reader in of_results for record in reader.read()]
                    if keys is not None:
                        # Those that have been opened are plain.
                        records = keys.open_messages(records)
                    return dict(
                        result(record.topic(), record.key(), record.value()) for record in records
                    )

                await_condition(lambda: found() == expected, 120, f"{len(expected)} results")
                if case.guarantee == "exactly_once_v2":
                    ids = [
                        decode_event(record.value()).id
                        for reader in of_results
                        for record in reader.records
                        if record.topic() == EVENT
                    ]
                    assert len(ids) == len(set(ids))
                assert second.stop() == 0
            finally:
                second.stop(signal.SIGKILL)
            for topic in (LOCATION, changelog, *topics):
                stored = read_topic(servers, topic)
                assert {is_sealed(each.value()) for each in stored if each.value()} == {
                    case.sealed and is_sealed_topic(topic)
                }
        finally:
            first.stop(signal.SIGKILL)
            for reader in readers:
                reader.close()
            if keys is not None:
                keys.close()
