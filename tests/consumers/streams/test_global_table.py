"""Definitions that all workers follow, read from a real topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from consumers.streams.definitions import write_definitions
from consumers.streams.geofences.topology import Geofences
from consumers.streams.global_table import GlobalTable
from consumers.streams.properties import Properties
from tests.consumers.running import Broker, await_condition
from tests.consumers.streams.harness import Driven, make_fix, told
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import GEOFENCE, GEOFENCE_TOPIC

MANY = 1200


def circles(name: str) -> dict[str, bytes | None]:
    circle = msgspec.json.encode({"circle": {"lat": 47.0, "lon": 9.0, "radius": 500}})
    return {f"ann/{name}{number}": circle for number in range(MANY)}


@pytest.fixture
def topic(broker: Broker) -> Iterator[Broker]:
    ensure_topics(broker.address, [GEOFENCE_TOPIC])
    write_definitions(broker.address, GEOFENCE_TOPIC, circles("a"), "a geofence")
    yield broker
    write_definitions(broker.address, GEOFENCE_TOPIC, dict.fromkeys(circles("a")), "a geofence")


def test_all_that_was_read_is_handed_out_at_once(topic: Broker) -> None:
    table = GlobalTable(topic.address, GEOFENCE, lambda _key, value: value)
    try:
        table.wait(threading.Event())
        found: dict[str, bytes | None] = {}
        table.follow(found.__setitem__)
        assert {key for key, value in found.items() if value} >= circles("a").keys()
    finally:
        table.close()


def test_what_is_no_definition_removes_the_one_before(topic: Broker) -> None:
    found: dict[str, object] = {}
    name = "ann/other"
    table = GlobalTable(topic.address, GEOFENCE, lambda _key, value: msgspec.json.decode(value))

    def write(value: bytes | None) -> None:
        write_definitions(topic.address, GEOFENCE_TOPIC, {name: value}, "a geofence")

    def follows(expected: object) -> Callable[[], bool]:
        def has_followed() -> bool:
            table.follow(found.__setitem__)
            return name in found and found[name] == expected

        return has_followed

    try:
        write(b'{"a":1}')
        await_condition(follows({"a": 1}), 60, "the definition")
        write(b"{")
        await_condition(follows(None), 60, "its end")
    finally:
        write(None)
        table.close()


def test_definitions_are_followed_while_no_fixes_come(topic: Broker) -> None:
    processor = Geofences(Properties())
    driven = Driven(processor)
    processor.start(topic.address, threading.Event())
    try:
        former = len(processor.fences)
        write_definitions(topic.address, GEOFENCE_TOPIC, circles("b"), "a geofence")

        def has_followed() -> bool:
            driven.pass_time()
            return len(processor.fences) == former + MANY

        await_condition(has_followed, 60, "the new definitions")
        # A device is in a thousand fences at once, at most.
        assert len(told(driven.send(make_fix(0, 47.0, 9.0, accuracy=1.0)))) == 1000
    finally:
        processor.close()
