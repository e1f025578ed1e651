"""The selection and rate of addresses that are looked up again; on a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from consumers.resolver.renewal import Renewal
from consumers.worker.partitions import PartitionReader
from tests.consumers.running import Broker, await_condition
from tests.dying_threads import assert_process_ends
from waylog.kafka.clients import client_config, producer_config
from waylog.kafka.topics import ADDRESS
from waylog.messages import Address, encode


@pytest.fixture
def renewal(broker: Broker) -> Iterator[Renewal]:
    renewal = Renewal(client_config(broker.address, "renewal"), ADDRESS, rate_per_s=100)
    yield renewal
    renewal.close()


def write(broker: Broker, *addresses: Address | bytes | None, device: str = "") -> None:
    producer = Producer(producer_config(broker.address, "addresses"))
    for each in addresses:
        key = each.device if isinstance(each, Address) else device
        value = encode(each) if isinstance(each, Address) else each
        producer.produce(ADDRESS, value, key.encode(), partition=1)
    assert producer.flush(60) == 0


def address(device: str, fix: int, version: str) -> Address:
    return Address(
        device=device, fix_id=str(fix), time=fix, lat=1.0, lon=2.0, display_name="",
        address={}, index_version=version,
    )  # fmt: skip


def take_all(renewal: Renewal, version: str, count: int) -> list[tuple[int, str, int]]:
    """Take stale addresses as a resolver does that owns partition 1."""
    taken: list[tuple[int, str, int]] = []

    def enough() -> bool:
        found = renewal.take([1], version, time.time_ns() // 1_000_000)
        taken.extend((partition, fix.device, fix.time) for partition, fix in found)
        return len(taken) >= count

    await_condition(enough, 60, f"{count} stale addresses")
    return sorted(taken)


def test_what_another_index_said_last_is_stale(broker: Broker, renewal: Renewal) -> None:
    write(
        broker,
        address("a/old", 1, "old"),
        address("b/renewed", 1, "old"),
        address("b/renewed", 1, "new"),
        address("c/newer", 1, "new"),
        address("c/newer", 2, "old"),
        address("d/by fallback", 1, "new+nominatim"),
        address("e/erased", 1, "old"),
        b"garbage",
        b'{"device": "\xff"}',
    )
    write(broker, None, device="e/erased")
    assert take_all(renewal, "new", 2) == [(1, "a/old", 1), (1, "c/newer", 2)]
    # No address twice for one index; all that is stale for the next.
    assert renewal.take([1], "new", 10**15) == []
    assert len(take_all(renewal, "newest", 4)) == 4


def test_no_more_than_the_rate_is_taken_at_once(broker: Broker, renewal: Renewal) -> None:
    write(broker, *(address(f"u/{number}", 1, "old") for number in range(500)))
    assert renewal.take([1], "new", 1_000) == []
    await_condition(lambda: renewal._found.qsize() == 500, 60, "all are found")
    assert len(renewal.take([1], "new", 1_100)) == 10
    assert len(renewal.take([1], "new", 1_105)) == 0
    assert len(renewal.take([1], "new", 1_200)) == 10
    # Also after a long pause, at most the share of one second.
    assert len(renewal.take([1], "new", 100_000)) == 100


def test_what_is_no_longer_ours_is_dropped(broker: Broker, renewal: Renewal) -> None:
    write(broker, *(address(f"u/{number}", 1, "old") for number in range(50)))
    renewal.take([1], "new", 1_000)
    await_condition(lambda: renewal._found.qsize() == 50, 60, "all are found")
    assert renewal.take([], "new", 2_000) == []


def test_a_partition_that_could_not_be_read_is_read_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bounds = PartitionReader.bounds
    failures = [ValueError("a bug"), ValueError("a bug")]

    def bounds_later(self: PartitionReader, topic: str, partition: int) -> tuple[int, int]:
        if failures:
            raise failures.pop()
        return bounds(self, topic, partition)

    monkeypatch.setattr(PartitionReader, "bounds", bounds_later)
    write(broker, address("a/old", 1, "old"))
    config = client_config(broker.address, "renewal")
    renewal = Renewal(config, ADDRESS, rate_per_s=100, retry_s=0.01)
    try:
        assert take_all(renewal, "new", 1) == [(1, "a/old", 1)]
    finally:
        renewal.close()
    said = "reading addresses to renew failed; it is tried again\nTraceback"
    assert caplog.text.count(said) == 1


def test_a_partition_that_could_not_be_read_and_is_no_longer_ours_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []

    class Unreadable:
        def __init__(self, *_arguments: object) -> None:
            pass

        def bounds(self, _topic: str, partition: int) -> tuple[int, int]:
            tries.append(partition)
            raise ValueError("a bug")

        def batches(self, *_arguments: object, **_options: object) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr("consumers.resolver.renewal.PartitionReader", Unreadable)
    renewal = Renewal({"client.id": "test"}, ADDRESS, retry_s=0.001)
    try:
        renewal.take([1], "new", 0)
        await_condition(lambda: tries.count(1) >= 2, 60, "the first partition")
        renewal.take([2], "new", 0)
        await_condition(lambda: tries.count(2) >= 5, 60, "the second partition")
    finally:
        renewal.close()
    assert tries[tries.index(2) :].count(1) <= 1  # it was perhaps being begun


def test_a_renewing_thread_takes_its_process_with_it() -> None:
    assert_process_ends(
        """
        from consumers.resolver import renewal
        renewal.PartitionReader = die
        renewal.Renewal({"client.id": "test"}, "address").take([1], "new", 0)
        """,
        "renewal",
    )
