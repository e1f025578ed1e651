"""Compares the addresses of all devices with those that another index gives."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec
from confluent_kafka import Message

from consumers.worker.partitions import PartitionReader
from geoservice.reverse.geocoder import Geocoder, is_point
from waylog.kafka.clients import client_config
from waylog.kafka.topics import ADDRESS
from waylog.malformed import MALFORMED
from waylog.messages import Address, decode_address

EXAMPLES: Final = 20
_BATCH: Final = 1000


class ComparisonFailed(Exception):
    """There is nothing to compare with; the message says why."""


class Member(msgspec.Struct):
    """The number of addresses in which a member differs."""

    changed: int = 0
    added: int = 0  # only the new address has it
    removed: int = 0  # only the old address has it

    @property
    def total(self) -> int:
        """The number of all differences."""
        return self.changed + self.added + self.removed


class Example(msgspec.Struct):
    """One address that differs."""

    device: str
    members: list[str]
    before: str
    after: str


class Comparison(msgspec.Struct, kw_only=True):
    """The differences found so far; `add` takes pairs of addresses of the same fix."""

    before: dict[str, int] = {}  # index versions of the old addresses
    after: dict[str, int] = {}  # and of the new ones
    compared: int = 0
    same: int = 0
    different: int = 0
    other_fix: int = 0  # not compared, because the two addresses are of different fixes
    missing: int = 0  # devices without a new address
    members: dict[str, Member] = {}
    examples: list[Example] = []
    examples_max: int = EXAMPLES

    def add(self, before: Address, after: Address | None) -> None:
        """Compare the two addresses of one device."""
        _count(self.before, before.index_version)
        if after is None:
            self.missing += 1
            return
        _count(self.after, after.index_version)
        if (before.fix_id, before.time) != (after.fix_id, after.time):
            self.other_fix += 1
            return
        self.compared += 1
        members = self._members(before, after)
        if not members:
            self.same += 1
            return
        self.different += 1
        if len(self.examples) < self.examples_max:
            example = Example(before.device, members, before.display_name, after.display_name)
            self.examples.append(example)

    def _members(self, before: Address, after: Address) -> list[str]:
        members: list[str] = []
        for name in before.address.keys() | after.address.keys():
            old, new = before.address.get(name), after.address.get(name)
            if old == new:
                continue
            members.append(name)
            member = self.members.setdefault(name, Member())
            if old is None:
                member.added += 1
            elif new is None:
                member.removed += 1
            else:
                member.changed += 1
        if not members and before.display_name != after.display_name:
            members.append("display_name")
            self.members.setdefault("display_name", Member()).changed += 1
        return sorted(members)


def _count(counts: dict[str, int], version: str) -> None:
    counts[version] = counts.get(version, 0) + 1


def compare(
    bootstrap_servers: str,
    other: Geocoder | str,
    *,
    examples_max: int = EXAMPLES,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Comparison:
    """Compare topic `address` with another index, or with a topic that a re-resolve has filled.

    Holds the addresses of one partition at a time. `progress` is called with the number of
    partitions done and the number of all partitions. Raises ComparisonFailed and KafkaException.
    """
    comparison = Comparison(examples_max=examples_max)
    reader = PartitionReader(client_config(bootstrap_servers, "compare"), "compare")
    try:
        partitions = reader.partitions(ADDRESS)
        if not partitions:
            raise ComparisonFailed(f"there is no topic {ADDRESS}")
        if isinstance(other, str) and reader.partitions(other) != partitions:
            raise ComparisonFailed(
                f"there is no topic {other} with {len(partitions)} partitions; "
                "`waylog resolver --from-earliest --index INDEX` makes one"
            )
        for number, partition in enumerate(partitions):
            progress(number, len(partitions))
            before = newest_addresses(reader, ADDRESS, partition)
            if isinstance(other, str):
                after = newest_addresses(reader, other, partition)
                for address in before.values():
                    comparison.add(address, after.get(address.device))
            else:
                for address, again in look_up_again(other, before.values()):
                    comparison.add(address, again)
        progress(len(partitions), len(partitions))
    finally:
        reader.close()
    return comparison


def newest_addresses(reader: PartitionReader, topic: str, partition: int) -> dict[str, Address]:
    """Return the newest address of each device of a partition."""
    newest: dict[str, Address] = {}
    for records in reader.batches(topic, partition, *reader.bounds(topic, partition)):
        for record in records:
            _take(newest, record)
    return newest


def _take(newest: dict[str, Address], record: Message) -> None:
    value = record.value()
    if value is None:
        newest.pop((record.key() or b"").decode("utf-8", "replace"), None)
        return
    try:
        address = decode_address(value)
    except MALFORMED:
        return
    if not is_point(address.lat, address.lon):
        # A record that another program wrote.
        return
    before = newest.get(address.device)
    if before is None or address.time >= before.time:
        newest[address.device] = address


def look_up_again(
    geocoder: Geocoder, addresses: Iterable[Address]
) -> Iterator[tuple[Address, Address]]:
    """Yield each address with the one that the index gives for the same fix."""
    remaining = iter(addresses)
    while batch := list(islice(remaining, _BATCH)):
        results = geocoder.reverse_batch(
            array("d", [each.lat for each in batch]), array("d", [each.lon for each in batch])
        )
        for address, result in zip(batch, results, strict=True):
            yield (
                address,
                msgspec.structs.replace(
                    address,
                    display_name=result.display_name,
                    address=result.address,
                    distance=result.distance,
                    index_version=result.index_version,
                ),
            )
