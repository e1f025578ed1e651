"""Resolvers that write in transactions, and are killed: readers see each address once.

The log is our broker, or Apache Kafka (-m kafka).
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from geoservice.index.store import WORLD_PATH
from tests.apache_kafka import ApacheKafka, running_apache_kafka
from tests.consumers.running import Broker, Process, await_condition
from tests.consumers.worker.test_worker import Reader, committed
from tests.geoservice.index_files import write_renamed
from waylog.kafka.clients import client_config, ensure_topics, producer_config
from waylog.kafka.topics import ADDRESS, ERROR, LOCATION
from waylog.messages import Fix, decode_address, decode_rejected, encode, fix_id

#: Of the long test.
KILLS = int(os.environ.get("WAYLOG_TEST_KILLS", "30"))
EXACTLY_ONCE = ("--processing-guarantee", "exactly_once_v2")

StartResolver = Callable[..., Process]


class Load:
    """Fixes, each of another device, so that each has to get an address."""

    def __init__(self, servers: str) -> None:
        self.sent: set[tuple[str, str]] = set()
        self._producer = Producer(producer_config(servers, "load", delivery_timeout_ms=120_000))
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def send(self, count: int) -> None:
        """Send some fixes, and wait until they are acknowledged."""
        self._queue(count)
        assert self._producer.flush(120) == 0

    def append(self, value: bytes) -> None:
        """Send a record that is no fix."""
        self._producer.produce(LOCATION, value, b"ann/phone")

    def start(self, rate_per_s: int) -> None:
        """Send until `stop`."""
        self._thread = threading.Thread(target=self._run, args=(rate_per_s // 10,))
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self, count: int) -> None:
        while not self._stopping.wait(0.1):
            self._queue(count)
            self._producer.poll(0)

    def _queue(self, count: int) -> None:
        for _ in range(count):
            user = f"user{len(self.sent)}"
            device = f"{user}/phone"
            time_ms = 1_700_000_000_000 + len(self.sent)
            fix = Fix(
                id=fix_id(device, time_ms, 47.14, 9.52), device=device, user=user,
                lat=47.14, lon=9.52, time=time_ms, received=time_ms,
            )  # fmt: skip
            self.sent.add((device, fix.id))
            self._producer.produce(LOCATION, encode(fix), device.encode())


class Seen:
    """What a reader of committed records sees of topic `address`."""

    def __init__(self, broker: Broker) -> None:
        self.times: Counter[tuple[str, str]] = Counter()
        self._reader = Reader(broker, ADDRESS)

    def read(self) -> int:
        """Read on; return the number of addresses seen so far."""
        for record in self._reader.read():
            address = decode_address(record.value())
            self.times[address.device, address.fix_id] += 1
        self._reader.records.clear()
        return self.times.total()

    def await_all(self, load: Load, timeout_s: float = 90) -> None:
        """Wait for an address of every fix, and check that none came twice."""
        await_condition(
            lambda: self.read() and self.times.keys() >= load.sent, timeout_s, "all addresses"
        )
        assert self.times.keys() == load.sent
        assert not [each for each, times in self.times.items() if times > 1]

    def close(self) -> None:
        self._reader.close()


@pytest.fixture(params=["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker | ApacheKafka]:
    if request.param == "waylog":
        ours = Broker(tmp_path)
        try:
            ensure_topics(ours.address)
            yield ours
        finally:
            ours.process.stop()
    else:
        with running_apache_kafka() as theirs:
            ensure_topics(theirs.address)
            yield theirs


@pytest.fixture
def load(broker: Broker) -> Iterator[Load]:
    load = Load(broker.address)
    yield load
    load.stop()


@pytest.fixture
def seen(broker: Broker) -> Iterator[Seen]:
    seen = Seen(broker)
    yield seen
    seen.close()


def test_every_fix_gets_its_address_and_its_offset_is_committed_with_it(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen
) -> None:
    load.send(3000)
    resolver = start_resolver(*EXACTLY_ONCE)
    load.send(1000)
    seen.await_all(load)
    # Offsets are decided when their addresses can be read, not later.
    assert committed(broker.address) == len(load.sent)
    assert resolver.stop() == 0
    start_resolver(*EXACTLY_ONCE)
    load.send(10)
    seen.await_all(load)


def kill_often(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen, kills: int
) -> None:
    """Kill resolvers and broker in turn, each time at another moment of a transaction."""
    chance = random.Random(kills)
    resolvers = [start_resolver(*EXACTLY_ONCE) for _ in range(2)]
    load.start(rate_per_s=1000)
    for number in range(kills):
        goal = seen.read() + chance.randrange(200, 1200)
        await_condition(lambda goal=goal: seen.read() >= goal, 90, "more addresses")  # type: ignore[misc]
        if number % 3 == 1:
            broker.kill()
            broker.start()
        else:
            resolvers.pop(0).stop(signal.SIGKILL)
            resolvers.append(start_resolver(*EXACTLY_ONCE))
    load.stop()
    seen.await_all(load, 180)
    for each in resolvers:
        assert each.stop() == 0
    assert committed(broker.address) == len(load.sent)


def test_killed_resolvers_and_brokers_lose_nothing_and_repeat_nothing(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen
) -> None:
    kill_often(broker, start_resolver, load, seen, 3)


@pytest.mark.long
@pytest.mark.timeout(120 + 60 * KILLS)
def test_many_kills_lose_nothing_and_repeat_nothing(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen
) -> None:
    kill_often(broker, start_resolver, load, seen, KILLS)


def test_a_resolver_that_wakes_after_its_partitions_moved_writes_nothing(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen
) -> None:
    zombie = start_resolver(*EXACTLY_ONCE)
    load.start(rate_per_s=1000)
    await_condition(lambda: seen.read() > 1000, 60, "addresses")
    os.kill(zombie.pid, signal.SIGSTOP)
    try:
        other = start_resolver(*EXACTLY_ONCE)
        load.stop()
        seen.await_all(load)
        other.wait_for("assigned .*3")
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
    zombie.wait_for("processed again|starting again|lost")
    load.send(1000)
    seen.await_all(load)
    # It is a member like any other again.
    assert other.stop() == 0
    load.send(1000)
    seen.await_all(load)
    assert zombie.stop() == 0
    assert committed(broker.address) == len(load.sent)


def limit_errors(broker: Broker, size: int) -> None:
    """Set the size of records that topic `error` takes."""
    admin = AdminClient(client_config(broker.address, "test"))
    change = ConfigEntry(
        "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, ERROR, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_a_dead_letter_that_is_refused_fails_no_transaction_for_long(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen
) -> None:
    limit_errors(broker, 600)
    resolver = start_resolver(*EXACTLY_ONCE)
    errors = Reader(broker, ERROR)

    def raws() -> list[bytes]:
        return sorted(decode_rejected(each.value()).raw for each in errors.read())

    try:
        load.append(b"garbage")
        load.send(100)
        seen.await_all(load)
        await_condition(lambda: raws() == [b"garbage"], 60, "a dead letter in a transaction")
        load.append(random.Random(1).randbytes(100_000))
        load.send(100)
        seen.await_all(load)
        resolver.wait_for("records since the last commit are processed again: ")
        await_condition(lambda: raws() == [b"", b"garbage"], 60, "the shortened dead letter")
        # Not even that is taken.
        limit_errors(broker, 100)
        load.append(b"more garbage")
        load.send(100)
        resolver.wait_for(r"the refused record location-\d at \d+ is left out: topic error does")
        seen.await_all(load)
        assert raws() == [b"", b"garbage"]
    finally:
        errors.close()
    assert resolver.stop() == 0
    assert "starting again" not in resolver.output


def test_addresses_are_renewed_in_transactions_without_new_fixes(
    broker: Broker, start_resolver: StartResolver, load: Load, seen: Seen, tmp_path: Path
) -> None:
    load.send(40)
    first = start_resolver(*EXACTLY_ONCE)
    seen.await_all(load)
    assert first.stop() == 0
    other_index = tmp_path / "new.bin"
    write_renamed(WORLD_PATH, other_index, b"Vaduz", b"Zuduv")
    start_resolver(*EXACTLY_ONCE, "--geo", other_index, "--renew")
    await_condition(
        lambda: seen.read() and set(seen.times.values()) == {2}, 60, "renewed addresses"
    )
    assert committed(broker.address) == 40
