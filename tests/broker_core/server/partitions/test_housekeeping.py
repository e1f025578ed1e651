"""Housekeeping in a running broker: retention, compaction, flushes, idle files."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker_core.environment import Environment, File, SystemClock, SystemDisk
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.record_reader import iterate_records
from broker_core.server.partitions.partition import Partition
from broker_core.server.runtime import Broker
from tests.broker_core.server.topics import administer, all_open, create_topic

Start = Callable[..., Awaitable[Broker]]


def append(broker: Broker, partition: Partition, key: bytes, value: bytes, time_ms: int) -> None:
    """Append one record in its own batch."""
    partition.append(build_batch([(time_ms, key, value, ())]), broker.clock.now_ms())
    broker.flusher.request(partition)


async def test_old_records_go(start: Start) -> None:
    broker = await start(log_retention_check_interval_ms="20")
    topic = create_topic(broker, "t", 1, {"retention.ms": "60000", "segment.bytes": "200"})
    (partition,) = topic.partitions
    for i in range(20):
        append(broker, partition, b"k", b"%d" % i, 1_000)
    append(broker, partition, b"k", b"new", broker.clock.now_ms())
    async with asyncio.timeout(60):
        while partition.log.log_start_offset < 18:
            await asyncio.sleep(0.01)
    assert partition.log.log_end_offset == 21


async def test_a_compacted_topic_keeps_the_newest_record_of_each_key(start: Start) -> None:
    broker = await start(log_cleaner_backoff_ms="20")
    topic = create_topic(broker, "t", 1, {"cleanup.policy": "compact", "segment.bytes": "500"})
    (partition,) = topic.partitions
    for i in range(100):
        append(broker, partition, b"k%d" % (i % 3), b"%d" % i, broker.clock.now_ms())
    async with asyncio.timeout(60):
        while partition.high_watermark < 100 or len(records := contents(partition)) > 20:
            await asyncio.sleep(0.01)
    newest = {record[2]: record[3] for record in records}
    assert newest == {b"k0": b"99", b"k1": b"97", b"k2": b"98"}


class WaitingDisk(SystemDisk):
    """A disk at which other threads wait to open segments until the test lets them."""

    def __init__(self) -> None:
        self.somebody_waits = threading.Event()
        self.may_open: Callable[[], bool] = lambda: True

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        is_other = threading.current_thread() is not threading.main_thread()
        if is_other and path.match("t-0/*.log") and not self.may_open():
            self.somebody_waits.set()
            until = time.monotonic() + 60
            while not self.may_open() and time.monotonic() < until:
                time.sleep(0.001)
        return super().open(path, create=create, writable=writable)


async def test_a_broker_that_ends_does_not_wait_for_a_compaction(start: Start) -> None:
    disk = WaitingDisk()
    broker = await start(Environment(SystemClock(), disk), log_cleaner_backoff_ms="20")
    settings = {"cleanup.policy": "compact", "segment.bytes": "500", "segment.ms": "3600000"}
    (partition,) = create_topic(broker, "t", 1, settings).partitions
    log = partition.log
    disk.may_open = lambda: log._is_ending
    for number in range(100):
        append(broker, partition, b"k", b"%d" % number, broker.clock.now_ms())
    await asyncio.to_thread(disk.somebody_waits.wait, 60)
    await broker.close()
    disk.may_open = lambda: True
    again = await start()
    topic = await all_open(again, "t")
    assert len(contents(topic.partitions[0])) == 100


class MovedClock(SystemClock):
    """The system's clocks, of which the test moves one ahead."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


async def test_a_compaction_that_hangs_is_told_keeps_nobody_waiting_and_ends_the_broker_at_last(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    clock, disk = MovedClock(), WaitingDisk()
    broker = await start(
        Environment(clock, disk), log_cleaner_backoff_ms="20", log_retention_check_interval_ms="20"
    )
    settings = {"cleanup.policy": "compact,delete", "segment.bytes": "500", "retention.ms": "-1"}
    (hanging,) = create_topic(broker, "t", 1, settings).partitions
    may_open = threading.Event()
    disk.may_open = may_open.is_set
    for number in range(100):
        append(broker, hanging, b"k", b"%d" % number, clock.now_ms())
    await asyncio.to_thread(disk.somebody_waits.wait, 60)
    settings = {"retention.ms": "60000", "segment.bytes": "200"}
    (other,) = create_topic(broker, "other", 1, settings).partitions
    try:
        async with asyncio.timeout(60):
            for begin in (0, 20):
                for i in range(begin, begin + 20):
                    append(broker, other, b"k", b"%d" % i, 1_000)
                while other.log.log_start_offset < begin + 18:
                    await asyncio.sleep(0.01)
            assert "storage" not in broker.problems()
            clock.ahead_s = 150
            while "compaction of t-0 has made no step" not in broker.problems().get("storage", ""):
                await asyncio.sleep(0.01)
            assert not broker.failed.done()
            clock.ahead_s = 700
            await asyncio.wait((broker.failed,))
    finally:
        may_open.set()
    assert re.search(r"compaction of t-0 has made no step for 7\d\d\b", caplog.text)


async def test_a_compaction_that_fails_each_round_is_told_once(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    rounds: list[int] = []

    class NearlyFullDisk(SystemDisk):
        """A disk without room for a compaction."""

        def free_bytes(self, directory: Path) -> int:
            if directory.name == "t-0":
                rounds.append(1)
            return 10_000_000

    broker = await start(Environment(SystemClock(), NearlyFullDisk()), log_cleaner_backoff_ms="20")
    topic = create_topic(broker, "t", 1, {"cleanup.policy": "compact", "segment.bytes": "500"})
    for number in range(100):
        append(broker, topic.partitions[0], b"k", b"%d" % number, broker.clock.now_ms())
    async with asyncio.timeout(60):
        while len(rounds) < 10:
            await asyncio.sleep(0.01)
    assert 1 <= caplog.text.count("compaction of t-0: ") < 5  # its need grows with the log


async def test_the_pause_between_compactions_can_be_changed_while_the_broker_runs(
    start: Start,
) -> None:
    broker = await start(log_cleaner_backoff_ms="3600000")
    topic = create_topic(broker, "t", 1, {"cleanup.policy": "compact", "segment.bytes": "500"})
    (partition,) = topic.partitions
    for i in range(100):
        append(broker, partition, b"k%d" % (i % 3), b"%d" % i, broker.clock.now_ms())
    async with asyncio.timeout(60):
        while partition.high_watermark < 100:
            await asyncio.sleep(0.01)
    assert len(contents(partition)) == 100
    administer(
        broker,
        lambda operations: operations.change_broker("", {"log.cleaner.backoff.ms": "20"}),
    )
    async with asyncio.timeout(60):
        while len(contents(partition)) > 20:
            await asyncio.sleep(0.01)


async def test_when_producers_expire_can_be_changed_while_the_broker_runs(start: Start) -> None:
    broker = await start()
    (partition,) = create_topic(broker, "t", 1, {"retention.ms": "1000"}).partitions
    administer(
        broker,
        lambda operations: operations.change_broker("0", {"producer.id.expiration.ms": "20"}),
    )
    assert partition.log.config.producer_id_expiration_ms == 20
    assert partition.log.config.retention_ms == 1000


async def test_a_closed_segment_becomes_durable_without_being_asked(start: Start) -> None:
    broker = await start(
        log_flush_interval_messages=str(2**63 - 1), log_flush_scheduler_interval_ms="20"
    )
    (partition,) = create_topic(broker, "t", 1, {"segment.bytes": "200"}).partitions
    for i in range(10):
        partition.append(build_batch([(1, b"k", b"%d" % i * 20, ())]), broker.clock.now_ms())
    assert partition.log.recovery_point == 0
    async with asyncio.timeout(60):
        while partition.log.recovery_point < 10:
            await asyncio.sleep(0.01)


async def test_files_of_idle_logs_are_closed(broker: Broker) -> None:
    (partition,) = create_topic(broker, "t", 1, {}).partitions
    housekeeping = broker._housekeeping
    append(broker, partition, b"k", b"v", 1)
    async with asyncio.timeout(60):
        while partition.high_watermark < 1:
            await asyncio.sleep(0.01)
    housekeeping.park_idle()
    assert partition.log.segments[-1].is_open
    housekeeping.park_idle()
    assert not partition.log.segments[-1].is_open


def contents(partition: Partition) -> list[tuple[int, int, bytes | None, bytes | None, object]]:
    """Return all records of a partition."""
    found: list[tuple[int, int, bytes | None, bytes | None, object]] = []
    offset = partition.log.log_start_offset
    while offset < partition.high_watermark:
        data = partition.read(offset, 1 << 20, min_one_message=True)
        if not data:
            break
        found += iterate_records(data)
        offset = found[-1][0] + 1
    return found
