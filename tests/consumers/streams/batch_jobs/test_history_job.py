"""Topologies and the history job as processes on one log: both have found the same in its fixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from consumers.streams.definitions import write_definitions
from consumers.streams.meetings.topology import Meetings
from consumers.streams.processor import application_id
from consumers.streams.properties import Properties
from consumers.worker.records import OutputRecord
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.streams.batch_jobs.comparisons import COMPARISONS
from tests.consumers.streams.batch_jobs.history import open_history
from tests.consumers.streams.batch_jobs.replay import people
from tests.consumers.streams.test_topologies_on_a_broker import Reader
from tests.spark.running import Running
from waylog.friendships import Friendship, friendship_key
from waylog.kafka.clients import consumer_config, producer_config
from waylog.kafka.topics import (
    EVENT,
    FRIENDSHIP_TOPIC,
    GEOFENCE_TOPIC,
    HEAT_MAP,
    LOCATION,
    TRIP,
    TRIP_DAY,
)
from waylog.messages import encode

pytestmark = [pytest.mark.long, pytest.mark.spark]


#: Longer than the backlog of five days, however late a partition is read.
LONG = {"wait_s": "1e7", "idle_s": "1e7"}


def properties_of(name: str, properties: Mapping[str, str]) -> list[str]:
    """Return the words that give a topology its properties."""
    each = [f"{name}.{key}={value}" for key, value in properties.items()]
    return [word for one in each for word in ("--property", one)]


def has_taken_all(servers: str, group: str, topic: str) -> bool:
    """Tell whether a group has committed the end of each partition of a topic."""
    consumer = Consumer(consumer_config(servers, "asking", group))
    try:
        numbers = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        partitions = [TopicPartition(topic, number) for number in numbers]
        ends = [consumer.get_watermark_offsets(each, timeout=60)[1] for each in partitions]
        found = consumer.committed(partitions, timeout=60)
        return [max(0, each.offset) for each in found] == ends
    finally:
        consumer.close()


@pytest.mark.timeout(900)
def test_what_topologies_tell_is_in_the_parquet_that_the_history_job_writes(
    broker: Broker, start_topology: Callable[..., Process], tmp_path: Path
) -> None:
    replay = people()
    fences = {key: msgspec.json.encode(fence) for key, fence in replay.fences.items()}
    write_definitions(broker.address, GEOFENCE_TOPIC, fences, "a geofence")
    friendships = {
        key: msgspec.json.encode(Friendship(since))
        for one, other, since in replay.friends
        for key in (friendship_key(one, other), friendship_key(other, one))
    }
    write_definitions(broker.address, FRIENDSHIP_TOPIC, friendships, "a friendship")
    producer = Producer(producer_config(broker.address, "fleet"))
    for fix in replay.fixes:
        producer.produce(LOCATION, encode(fix), fix.device)
        producer.poll(0)
    assert producer.flush(120) == 0
    others = {name: each for name, each in COMPARISONS.items() if name != "meetings"}
    words = [word for name, each in others.items() for word in properties_of(name, each.properties)]
    start_topology(*others, *words, *properties_of("trips", {"time_zone": replay.zone}))
    # The positions of one partition come before those of another that are older, so that meetings
    # come in pieces: nothing may be settled before all of them are taken.
    own = COMPARISONS["meetings"].properties | LONG
    taking = start_topology("meetings", *properties_of("meetings", own))
    out = tmp_path / "history"
    job = Running(
        *("history", "run", "--once", "--bootstrap-servers", broker.address, "--out", str(out))
    )
    try:
        assert job.process.wait(300) == 0, job.said
    finally:
        job.close()
    # A processor commits after its results are stored, so that the next one then has all of them.
    for processor in Meetings(Properties({})).processors():
        group, topic = application_id(processor), processor.topic
        await_condition(
            lambda: has_taken_all(broker.address, group, topic),  # noqa: B023
            *(120, f"{group} has taken all of {topic}"),
        )
    assert taking.stop() == 0
    start_topology("meetings", *properties_of("meetings", own | {"idle_s": "1"}))
    readers = [Reader(broker.address, topic) for topic in (EVENT, HEAT_MAP, TRIP, TRIP_DAY)]

    def outputs() -> list[OutputRecord]:
        return [
            OutputRecord(each.topic(), None, each.key(), each.value())
            for reader in readers
            for each in reader.read()
        ]

    try:
        # The job stores multiples of 2**-24 degrees, which are these decimals.
        with open_history(out, decimals=7) as history:
            for name, comparison in COMPARISONS.items():

                def is_told(check: Callable[..., None] = comparison.check) -> bool:
                    try:
                        check(history, replay, outputs())
                    except AssertionError:
                        return False
                    return True

                await_condition(is_told, 120, f"what topology {name} tells")
    finally:
        for reader in readers:
            reader.close()
