"""Topologies and the history job as processes on one log: both have found the same in its fixes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from consumers.streams.definitions import write_definitions
from consumers.worker.records import OutputRecord
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.streams.batch_jobs.comparisons import COMPARISONS
from tests.consumers.streams.batch_jobs.history import open_history
from tests.consumers.streams.batch_jobs.replay import people
from tests.consumers.streams.test_topologies_on_a_broker import Reader
from tests.spark.running import Running
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import (
    EVENT,
    GEOFENCE_TOPIC,
    HEAT_MAP,
    LOCATION,
    TRIP,
    TRIP_DAY,
)
from waylog.messages import encode

pytestmark = [pytest.mark.long, pytest.mark.spark]


@pytest.mark.timeout(900)
def test_what_topologies_tell_is_in_the_parquet_that_the_history_job_writes(
    broker: Broker, start_topology: Callable[..., Process], tmp_path: Path
) -> None:
    # In a backlog the positions of one partition come before those of another that are older, and
    # meetings begin in pieces.
    compared = {name: each for name, each in COMPARISONS.items() if name != "meetings"}
    replay = people()
    fences = {key: msgspec.json.encode(fence) for key, fence in replay.fences.items()}
    write_definitions(broker.address, GEOFENCE_TOPIC, fences, "a geofence")
    producer = Producer(producer_config(broker.address, "fleet"))
    for fix in replay.fixes:
        producer.produce(LOCATION, encode(fix), fix.device)
        producer.poll(0)
    assert producer.flush(120) == 0
    properties = [
        f"{name}.{key}={value}"
        for name, comparison in compared.items()
        for key, value in comparison.properties.items()
    ]
    words = [word for each in properties for word in ("--property", each)]
    zone = f"trips.time_zone={replay.zone}"
    start_topology(*compared, *words, "--property", zone)
    out = tmp_path / "history"
    job = Running(
        *("history", "run", "--once", "--bootstrap-servers", broker.address, "--out", str(out))
    )
    try:
        assert job.process.wait(300) == 0, job.said
    finally:
        job.close()
    readers = [Reader(broker.address, topic) for topic in (EVENT, HEAT_MAP, TRIP, TRIP_DAY)]

    def outputs() -> list[OutputRecord]:
        return [
            OutputRecord(each.topic(), None, each.key(), each.value())
            for reader in readers
            for each in reader.read()
        ]

    try:
        with open_history(out) as history:
            for name, comparison in compared.items():

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
