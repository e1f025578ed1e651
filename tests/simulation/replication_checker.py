"""Invariants of a replicated partition."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.cluster.image import PartitionImage
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches
from broker_core.server.partitions.replicated_partition import ReplicatedPartition


class Violation(AssertionError):
    """A guarantee does not hold."""


class Checker:
    """Records what was acknowledged, read and committed, and checks it."""

    def __init__(self) -> None:
        #: The offset of each acknowledged record, by its number.
        self.acknowledged: dict[int, int] = {}
        #: The number of the record that was read at each offset.
        self.read: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        # Batches that a node has shown as committed, by their base offset.
        self._committed: dict[int, bytes] = {}
        self._shown: dict[int, tuple[ReplicatedPartition, int]] = {}

    def elected(self, image: PartitionImage) -> None:
        """Check a decision of the controller."""
        if not image.isr or not set(image.isr) <= set(image.replicas):
            raise Violation(f"ISR {image.isr} of replicas {image.replicas}")

    def observe(self, node_id: int, partition: ReplicatedPartition) -> None:
        """Check a node after an event."""
        if partition.leader is not None:
            known = self._leaders.setdefault(partition.leader_epoch, node_id)
            if known != node_id:
                raise Violation(f"{known} and {node_id} lead epoch {partition.leader_epoch}")
        log = partition.log
        if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
            raise Violation(
                f"node {node_id}: high watermark {partition.high_watermark} is not within "
                f"{log.log_start_offset}..{log.log_end_offset}"
            )
        shown = self._shown.get(node_id)
        start = shown[1] if shown is not None and shown[0] is partition else 0
        if partition.high_watermark < start:
            raise Violation(f"node {node_id}: the high watermark goes back")
        self._compare(node_id, partition, start)
        self._shown[node_id] = partition, partition.high_watermark

    def _compare(self, node_id: int, partition: ReplicatedPartition, start: int) -> None:
        """Check that logs agree below the high watermark."""
        offset = start
        while offset < partition.high_watermark:
            data = partition.log.read(offset, 100_000, up_to_offset=partition.high_watermark)
            headers = scan_batches(data)[0]
            if not headers:
                raise Violation(f"node {node_id} cannot read committed offset {offset}")
            for header in headers:
                batch = data[header.position : header.position + header.size]
                if self._committed.setdefault(header.base_offset, batch) != batch:
                    raise Violation(
                        f"node {node_id} has another batch at committed offset "
                        f"{header.base_offset} than was shown before"
                    )
                offset = header.next_offset

    def acknowledge(self, values: Iterable[int], base_offset: int) -> None:
        """Note records whose commit was acknowledged to a producer."""
        for offset, value in enumerate(values, base_offset):
            known = self.acknowledged.setdefault(value, offset)
            if known != offset:
                raise Violation(f"record {value} is acknowledged at {known} and {offset}")

    def consumed(self, offset: int, data: bytes) -> int:
        """Check batches that a consumer was given; return its next offset."""
        for record in iterate_records(data):
            if record[0] < offset:
                continue
            if record[0] != offset:
                raise Violation(f"a hole before offset {record[0]}, {offset} was asked for")
            number = int(record[3] or b"")
            if self.read.setdefault(offset, number) != number:
                raise Violation(
                    f"offset {offset} was {self.read[offset]} before and is {number} now"
                )
            offset += 1
        return offset

    def finish(self, partitions: dict[int, ReplicatedPartition], producers: int) -> None:
        """Check the end: everything acknowledged is on all nodes, once and in order."""
        logs = {node_id: _numbers(each) for node_id, each in partitions.items()}
        contents = list(logs.values())
        if any(each != contents[0] for each in contents):
            raise Violation(f"the logs differ: { {n: len(each) for n, each in logs.items()} }")
        numbers = contents[0]
        for number, offset in self.acknowledged.items():
            if offset >= len(numbers) or numbers[offset] != number:
                raise Violation(f"acknowledged record {number} is not at offset {offset}")
        for producer in range(producers):
            own = [each for each in numbers if each % producers == producer]
            if own != sorted(set(own)):
                raise Violation("records are doubled or out of order")
        for offset, number in self.read.items():
            if numbers[offset] != number:
                raise Violation(f"offset {offset} was read as {number}, it is {numbers[offset]}")


def _numbers(partition: ReplicatedPartition) -> list[int]:
    numbers: list[int] = []
    log = partition.log
    offset = log.log_start_offset
    while data := log.read(offset, 100_000):
        for record in iterate_records(data):
            if record[0] != len(numbers):
                raise Violation(f"offset {record[0]} where {len(numbers)} should be")
            numbers.append(int(record[3] or b""))
        offset = scan_batches(data)[0][-1].next_offset
    return numbers
