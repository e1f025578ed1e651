"""Resolves the fixes in the log again with another index, while the resolver is at work.

The results go to a topic of their own, with the same partitions as `address`: the newest address of
each device, as that index gives it. Only the group of resolvers writes `address` itself; that keeps
an older fix from replacing a newer one there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from consumers.resolver.newest_fixes import NewestFixes
from consumers.resolver.resolver import Resolver
from consumers.worker.partitions import PartitionReader
from consumers.worker.records import OutputRecord, StateRecord
from geoservice.reverse.geocoder import Geocoder
from geoservice.reverse.watch import FixedGeocoder
from waylog.kafka.clients import client_config, ensure_topics, producer_config
from waylog.kafka.errors import not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topics import ADDRESS, LOCATION, TOPICS, Topic
from waylog.observability.telemetry import now_ms
from waylog.sealing.sealing import opener, shared_key_ring

_FLUSH_S: Final = 60.0


class ReResolveFailed(Exception):
    """The run cannot go on; the message says why. The work done so far is kept."""


class Start(NamedTuple):
    """The start of a run in each partition: an offset, a time, or else the oldest record."""

    offset: int | None = None
    time_ms: int | None = None


class Range(NamedTuple):
    """The offsets to resolve in one partition of `location`, without `end`."""

    partition: int
    start: int
    end: int


@dataclass
class Done:
    """The outcome of a run."""

    topic: str
    index_version: str
    records: int = 0
    addresses: int = 0  # records written: at least one for each device
    rejected: int = 0  # records that are not fixes; they are in topic `error` already
    devices: int = 0
    resumed: bool = False  # the run went on where an earlier one stopped
    finished: bool = False


def topic_of(index_version: str) -> str:
    """Return the default topic for the addresses of an index."""
    return f"{ADDRESS}-{index_version}"


class ReResolver:
    """One run, from its start or from where the last one stopped, to the end of the log."""

    def __init__(
        self,
        bootstrap_servers: str,
        geocoder: Geocoder,
        start: Start,
        *,
        topic: str | None = None,
        restart: bool = False,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        """Prepare a run; raises ReResolveFailed for a topic that has other writers.

        `restart` ignores the offsets that an earlier run committed. `progress` is called with the
        number of records done and the number of all records.
        """
        self.done = Done(topic or topic_of(geocoder.index_version), geocoder.index_version)
        if self.done.topic in {each.name for each in TOPICS}:
            raise ReResolveFailed(
                f"topic {self.done.topic} has its own writers: choose another for the comparison"
            )
        self._bootstrap_servers = bootstrap_servers
        self._resolver = Resolver(FixedGeocoder(geocoder), topic=self.done.topic)
        self._keys = shared_key_ring(bootstrap_servers)
        self._opened = opener(bootstrap_servers)
        self._start = start
        self._restart = restart
        self._progress = progress
        self._stopping = False

    def stop(self) -> None:
        """Stop after the current batch. May be called by a signal handler."""
        self._stopping = True

    def run(self) -> Done:
        """Resolve all partitions; raises ReResolveFailed, LogUnreachable, KafkaException, and
        ConfigError for a master key that is missing or wrong.
        """
        config = client_config(self._bootstrap_servers, "re-resolve")
        # The group's offsets hold the progress, for the next run and for `waylog groups`.
        reader = PartitionReader(config, f"re-resolve-{self.done.topic}")
        try:
            partitions = reader.partitions(LOCATION)
            if not partitions:
                raise ReResolveFailed(f"there is no topic {LOCATION}")
            self._ensure_topic(reader, len(partitions))
            ranges = [self._range(reader, partition) for partition in partitions]
            total = sum(max(0, each.end - each.start) for each in ranges)
            self._progress(0, total)
            producer = LibrdkafkaProducer(
                producer_config(
                    self._bootstrap_servers, "re-resolve", queue_buffering_max_kbytes=16 * 1024
                )
            )
            for each in ranges:
                if not self._stopping:
                    self._run_partition(reader, producer, each, total)
        finally:
            reader.close()
        self.done.finished = not self._stopping
        return self.done

    def _ensure_topic(self, reader: PartitionReader, partitions: int) -> None:
        [address] = [each for each in TOPICS if each.name == ADDRESS]
        ensure_topics(self._bootstrap_servers, [Topic(self.done.topic, partitions, address.config)])
        found = reader.partitions(self.done.topic)
        if found and len(found) != partitions:
            raise ReResolveFailed(
                f"topic {self.done.topic} has {len(found)} partitions and {LOCATION} has "
                f"{partitions}: a device must be in the same partition of both"
            )

    def _range(self, reader: PartitionReader, partition: int) -> Range:
        low, high = reader.bounds(LOCATION, partition)
        committed = None if self._restart else reader.committed(LOCATION, partition)
        if committed is not None:
            self.done.resumed = True
            return Range(partition, max(low, committed), high)
        if self._start.time_ms is not None:
            found = reader.offset_of_time(LOCATION, partition, self._start.time_ms)
            return Range(partition, high if found is None else found, high)
        return Range(partition, max(low, self._start.offset or 0), high)

    def _run_partition(
        self, reader: PartitionReader, producer: LibrdkafkaProducer, todo: Range, total: int
    ) -> None:
        state = self._restored(reader, todo.partition)
        position = todo.start
        for records in reader.batches(
            LOCATION, todo.partition, todo.start, todo.end, stopped=lambda: self._stopping
        ):
            outputs = self._resolver.process(
                {todo.partition: self._opened(records)}, {todo.partition: state}, now_ms()
            )
            addresses = [each for each in outputs if each.topic == self.done.topic]
            _write(producer, [self._sealed(each) for each in addresses])
            self.done.records += len(records)
            self.done.addresses += len(addresses)
            self.done.rejected += len(outputs) - len(addresses)
            offset = records[-1].offset()
            assert offset is not None
            position = offset + 1
            reader.commit(LOCATION, todo.partition, position)
            self._progress(self.done.records, total)
        if not self._stopping and position < todo.end:
            # Only gaps in the offsets are left.
            reader.commit(LOCATION, todo.partition, todo.end)
        self.done.devices += len(state)

    def _restored(self, reader: PartitionReader, partition: int) -> NewestFixes:
        """Return the state of a partition from the addresses that earlier runs wrote."""
        state = self._resolver.new_state()
        bounds = reader.bounds(self.done.topic, partition)
        for records in reader.batches(
            self.done.topic, partition, *bounds, stopped=lambda: self._stopping
        ):
            state.restore([StateRecord(each.key(), each.value()) for each in self._opened(records)])
        return state

    def _sealed(self, output: OutputRecord) -> OutputRecord:
        if self._keys is None:
            return output
        sealed = self._keys.seal_value(output.topic, output.value, output.key)
        return msgspec.structs.replace(output, value=sealed)


def _write(producer: LibrdkafkaProducer, outputs: list[OutputRecord]) -> None:
    """Write records and wait until all are stored; raises ReResolveFailed."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for output in outputs:
        more: dict[str, Any] = {"headers": output.headers, "on_delivery": delivered}
        if output.partition is not None:
            more["partition"] = output.partition
        if output.timestamp is not None:
            more["timestamp"] = output.timestamp
        while True:
            try:
                producer.produce(output.topic, output.value, output.key, **more)
                break
            except BufferError:
                producer.poll(0.05)
            except KafkaException as error:
                failures.append(error.args[0])
                break
    topic = outputs[0].topic if outputs else ""
    waiting = producer.finish(_FLUSH_S, topic)
    if waiting or failures:
        reason = waiting or not_stored_text(failures[0], topic)
        raise ReResolveFailed(f"the results were not stored: {reason}")
