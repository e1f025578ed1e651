"""Runs the processors of a topology one behind the other without a broker."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from consumers.streams import registry
from consumers.streams.geofences.topology import Geofences
from consumers.streams.meetings.topology import Meetings
from consumers.streams.processor import Topology
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.streams.stream_task import PUNCTUATE_MS, StreamTask
from consumers.worker.records import OutputRecord, StateRecord
from tests.consumers.streams.harness import NOW, Record
from waylog.friendships import Friendship, friendship_key
from waylog.geofences.definition import decode_geofence
from waylog.messages import Fix, encode

#: Of each topic.
PARTITIONS = 3


class Stage:
    """A processor with all its partitions, whose changelog is kept in lists."""

    def __init__(self, processor: Any) -> None:
        self.topic = processor.topic
        self.processor = processor
        self.task: StreamTask[Any] = StreamTask(processor, "changelog")
        self.changelog: dict[int, list[StateRecord]] = {n: [] for n in range(PARTITIONS)}
        self.stores: dict[int, Store[Any]] = {}
        self.restart()

    def restart(self) -> None:
        """Throw the stores away, and restore them from the changelog."""
        for number in range(PARTITIONS):
            self.stores[number] = self.task.new_state()
            self.stores[number].restore(self.changelog[number])

    def keep(self) -> None:
        for number, records in self.task.state_changes(self.stores).items():
            self.changelog[number] += records


class Chain:
    """A topology; what its processors forward goes on to the next one, the rest to `outputs`."""

    def __init__(self, topology: Topology) -> None:
        self.stages = [Stage(each) for each in topology.processors()]
        self.outputs: list[OutputRecord] = []
        #: All that was forwarded, also between the processors.
        self.forwarded: list[OutputRecord] = []
        self.now_ms = NOW
        self._on_the_way: deque[OutputRecord] = deque()

    def send(self, *fixes: Fix | bytes | None) -> None:
        """Process fixes, or other values, as one batch of each partition."""
        batch: dict[int, list[Any]] = {}
        for each in fixes:
            key = each.device.encode() if isinstance(each, Fix) else b"odd"
            number = partition_of(key)
            value = encode(each) if isinstance(each, Fix) else each
            batch.setdefault(number, []).append(Record(value, key, partition=number))
        stage = self.stages[0]
        self._take(stage, stage.task.process(batch, stage.stores, self.now_ms))
        self._go_on()

    def pass_time(self, ms: int = PUNCTUATE_MS) -> None:
        """Let the wall clock go on."""
        self.now_ms += ms
        for stage in self.stages:
            self._take(stage, stage.task.late_results(stage.stores, self.now_ms))
            self._go_on()

    def restart(self) -> None:
        """Restore all stores from their changelogs."""
        for stage in self.stages:
            stage.restart()

    def forget_records(self) -> None:
        """Forget what was written so far; the stores stay."""
        self.outputs.clear()
        self.forwarded.clear()
        for stage in self.stages:
            for records in stage.changelog.values():
                records.clear()

    def _take(self, stage: Stage, outputs: list[OutputRecord]) -> None:
        self.forwarded += outputs
        stage.keep()
        self._on_the_way.extend(outputs)

    def _go_on(self) -> None:
        while self._on_the_way:
            output = self._on_the_way.popleft()
            stage = next((each for each in self.stages if each.topic == output.topic), None)
            if stage is None:
                self.outputs.append(output)
                continue
            number = output.partition
            if number is None:
                number = partition_of(output.key or b"")
            record = Record(output.value, output.key, partition=number)
            batch = {number % PARTITIONS: [record]}
            self._take(stage, stage.task.process(batch, stage.stores, self.now_ms))


def partition_of(key: bytes) -> int:
    return zlib.crc32(key) % PARTITIONS


def chain_of(
    name: str,
    properties: Mapping[str, str],
    fences: Mapping[str, bytes],
    friends: Iterable[tuple[str, str, int]],
) -> Chain:
    """Return an installed topology that knows geofences, and friends since a time in ms."""
    topology = registry.find(name)(Properties(properties))
    if isinstance(topology, Geofences):
        for key, value in fences.items():
            topology.define(key, decode_geofence(value))
    if isinstance(topology, Meetings):
        for one, other, since in friends:
            for table in (topology.positions.table, topology.pairs.table):
                table.friends.put(friendship_key(one, other), Friendship(since))
                table.friends.put(friendship_key(other, one), Friendship(since))
    return Chain(topology)
