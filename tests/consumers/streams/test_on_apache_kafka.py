"""Each topology on an Apache Kafka: kill -9 amid the records, and what its results are then."""

from __future__ import annotations

import math
import random
import signal
from typing import Any, Final

import msgspec
import pytest
from confluent_kafka import Producer

from consumers.streams import registry
from consumers.streams.definitions import write_definitions
from consumers.streams.geofences.definition import decode_geofence
from consumers.streams.processor import application_id, changelog_topic
from consumers.streams.properties import Properties
from tests.apache_kafka import apache_kafka
from tests.consumers.running import Process, await_condition
from tests.consumers.streams.chain import Chain
from tests.consumers.streams.harness import make_fix
from tests.consumers.streams.test_topologies_on_a_broker import Reader
from waylog.friendships import Friendship, friendship_key
from waylog.kafka.clients import ensure_topics, producer_config
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

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

#: By topology: its properties, and the topics of its results.
TOPOLOGIES: Final[dict[str, tuple[dict[str, str], tuple[str, ...]]]] = {
    "geofences": ({}, (EVENT,)),
    "heat-map": ({"devices_min": "1", "update_s": "1"}, (HEAT_MAP,)),
    # Half of the fixes are a backlog, in which positions come hours late.
    "meetings": ({"idle_s": "100000", "least_s": "120", "wait_s": "100000"}, (EVENT,)),
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


def befriended() -> dict[str, bytes | None]:
    pairs = ((2 * pair, 2 * pair + 1) for pair in range(PAIRS))
    return {
        friendship_key(f"u{one}", f"u{other}"): msgspec.json.encode(Friendship(0))
        for pair in pairs
        for one, other in (pair, pair[::-1])
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
    topology = registry.find(name)(Properties(TOPOLOGIES[name][0]))
    for processor in topology.processors():
        table = getattr(processor, "table", None)
        for key in befriended():
            if table is not None:
                table.friends.put(key, Friendship(0))
        if name == "geofences":
            processor.define("*/zoo", decode_geofence(FENCE))  # type: ignore[attr-defined]
    chain = Chain(topology)
    chain.now_ms = now_ms()
    for fix in sent:
        chain.send(fix)
    for _ in range(5):
        chain.pass_time()
    return dict(result(each.topic, each.key or b"", each.value) for each in chain.outputs)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_after_kill_9_its_results_are_those_of_a_run_in_one_go(name: str, guarantee: str) -> None:
    properties, topics = TOPOLOGIES[name]
    with apache_kafka() as servers:
        ensure_topics(servers)
        write_definitions(servers, FRIENDSHIP_TOPIC, befriended(), "a friendship")
        write_definitions(servers, GEOFENCE_TOPIC, {"*/zoo": FENCE}, "a geofence")
        words = ["streams", "run", name, "--bootstrap-servers", servers]
        words += ["--processing-guarantee", guarantee]
        for text in properties.items():
            words += ["--property", "=".join(text)]
        sent = fixes()
        producer = Producer(producer_config(servers, "fleet"))

        def send(some: list[Fix]) -> None:
            for fix in some:
                producer.produce(LOCATION, encode(fix), fix.device)
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
                    return dict(
                        result(record.topic(), record.key(), record.value())
                        for reader in of_results
                        for record in reader.read()
                    )

                await_condition(lambda: found() == expected, 120, f"{len(expected)} results")
                assert second.stop() == 0
            finally:
                second.stop(signal.SIGKILL)
        finally:
            first.stop(signal.SIGKILL)
            for reader in readers:
                reader.close()
