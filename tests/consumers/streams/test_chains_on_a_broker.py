"""Topologies with topics of their own on a real broker: kill -9, and several processors."""

from __future__ import annotations

import random
import signal
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from consumers.streams.definitions import write_definitions
from consumers.streams.heat_map.messages import CellCount
from consumers.streams.properties import Properties
from consumers.streams.trips.topology import Trips
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.streams.harness import Driven, make_fix
from tests.consumers.streams.test_topologies_on_a_broker import Reader, reader
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.topics import (
    EVENT,
    FRIENDSHIP_TOPIC,
    HEAT_MAP,
    HEAT_MAP_TOPIC,
    LOCATION,
    TRIP,
    TRIP_TOPICS,
)
from waylog.messages import Fix, decode_event, encode

StartTopology = Callable[..., Process]
__all__ = ["reader"]


def send(broker: Broker, *fixes: Fix) -> None:
    producer = Producer(producer_config(broker.address, "phones"))
    for fix in fixes:
        producer.produce(LOCATION, encode(fix), fix.device.encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def by_key(records: list[Any]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = defaultdict(list)
    for record in records:
        found[record.key()].append(record.value())
    return dict(found)


@pytest.mark.long
def test_after_kill_9_trips_are_told_exactly_once_and_are_those_of_a_batch_job(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    chance = random.Random(5)
    fixes: list[Fix] = []
    places = {f"user{number}/car": 47.0 for number in range(50)}
    for step in range(240):
        for device, lat in places.items():
            if step % 60 < 30:
                places[device] = lat + chance.uniform(0.001, 0.003)
            late = 30 if chance.random() < 0.05 else 0
            fixes.append(make_fix(30 * step - late, places[device], device=device))
    words = ("trips", "--processing-guarantee", "exactly_once_v2")
    ensure_topics(broker.address, TRIP_TOPICS)
    found = reader(TRIP)
    part = len(fixes) // 2
    for number in range(2):
        topology = start_topology(*words)
        before = len(found.read())
        send(broker, *fixes[part * number : part * (number + 1)])
        # Killed somewhere amid the records.
        await_condition(lambda: len(found.read()) > before, 60, "some trips")  # noqa: B023
        topology.stop(signal.SIGKILL)
    start_topology(*words)
    driven = Driven(Trips(Properties()))
    driven.now_ms += 10**9
    driven.send(*fixes)
    truth: dict[bytes, list[bytes]] = defaultdict(list)
    for each in driven.outputs:
        if each.topic == TRIP:
            truth[each.key or b""].append(each.value)
    total = sum(map(len, truth.values()))
    await_condition(lambda: len(found.read()) >= total, 60, "all trips")
    assert by_key(found.records) == truth


def test_counts_of_cells_come_through_both_processors(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    ensure_topics(broker.address, [HEAT_MAP_TOPIC])
    start_topology("heat-map", "--property", "update_s=0.1", "--property", "devices_min=3")
    send(broker, *(make_fix(n, device=f"u{n % 20}/x") for n in range(40)))
    send(broker, *(make_fix(n, 48.0, device="u1/x") for n in range(40, 50)))
    found = reader(HEAT_MAP)

    def counts() -> dict[tuple[str, int], int]:
        told = [msgspec.json.decode(each.value(), type=CellCount) for each in found.read()]
        return {(each.cell, each.start): each.devices for each in told}

    await_condition(lambda: list(counts().values()) == [20], 60, "the count of twenty devices")


def test_friends_who_are_together_are_told_through_all_processors(
    broker: Broker, start_topology: StartTopology, reader: Callable[[str], Reader]
) -> None:
    friends = {"ann\nbob": b'{"since":0}', "bob\nann": b'{"since":0}'}
    write_definitions(broker.address, FRIENDSHIP_TOPIC, friends, "a friendship")
    start_topology("meetings", "--property", "idle_s=1")
    for second in range(0, 600, 60):
        send(
            broker,
            make_fix(second, device="ann/phone"),
            make_fix(second + 9, 47.1401, device="bob/car"),
            make_fix(second + 9, 47.1401, device="carl/x"),
        )
    found = reader(EVENT)

    def told() -> list[Any]:
        return sorted(
            (each.device, (each.attributes or {})["transition"])
            for each in (decode_event(record.value()) for record in found.read())
        )

    everything = [
        (device, transition)
        for device in ("ann/phone", "bob/car")
        for transition in ("begin", "end")
    ]
    await_condition(lambda: told() == everything, 60, "begin and end for both")
