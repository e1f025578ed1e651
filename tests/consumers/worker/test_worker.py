"""Resolver processes against a real broker: kill -9, restarts, rebalances, bad records."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from geoservice.reverse.geocoder import Geocoder
from tests.consumers.running import Broker, Process, await_condition
from tests.contract.refusing_topic import ClusterWithRefusingTopic
from tests.odd_records import MALFORMED_VALUES, append_with_odd_header
from waylog.kafka.clients import client_config, consumer_config, ensure_topics, producer_config
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topics import ADDRESS, ERASURE, ERROR, LOCATION, TOPICS, Topic
from waylog.messages import Address, Fix, decode_address, decode_rejected, encode, fix_id

_SET = AlterConfigOpType.SET

pytestmark = pytest.mark.early

StartResolver = Callable[..., Process]


class Devices:
    """Sends fixes of some devices and remembers the newest of each."""

    def __init__(self, servers: str, count: int = 200) -> None:
        self.newest: dict[str, Fix] = {}
        self.sent = 0
        self._random = random.Random(4)
        self._names = [f"user{number}/phone" for number in range(count)]
        self._producer = Producer(producer_config(servers, "devices"))

    def send(self, rounds: int, *, late: float = 0.1) -> None:
        """Send `rounds` fixes of every device, some late; wait until all are acknowledged."""
        for _ in range(rounds):
            for name in self._names:
                self.sent += 1
                time_ms = 1_700_000_000_000 + self.sent
                if self._random.random() < late:
                    time_ms -= self._random.randrange(len(self._names) * 20)
                lat, lon = self._random.uniform(46, 48), self._random.uniform(6, 14)
                fix = Fix(
                    id=fix_id(name, time_ms, lat, lon), device=name, user=name.split("/")[0],
                    lat=lat, lon=lon, time=time_ms, received=time_ms,
                )  # fmt: skip
                if name not in self.newest or fix.time > self.newest[name].time:
                    self.newest[name] = fix
                self.append(encode(fix), name.encode())
        assert self._producer.flush(60) == 0

    def append(self, value: bytes | None, key: bytes | None, **more: Any) -> None:
        self._producer.produce(LOCATION, value, key, **more)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


class Reader:
    """Reads a topic from its beginning, and goes on with new records."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.records: list[Any] = []
        self._consumer = Consumer(consumer_config(broker.address, "reader", "reader"))
        partitions = self._consumer.list_topics(topic, timeout=60).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

    def read(self) -> list[Any]:
        self.records += [
            record for record in self._consumer.consume(5000, 0.05) if record.error() is None
        ]
        return self.records

    def close(self) -> None:
        self._consumer.close()


class Addresses:
    """The view of topic `address`: the last record of each device."""

    def __init__(self, broker: Broker) -> None:
        self.reader = Reader(broker, ADDRESS)
        self.last: dict[str, Address] = {}
        self.disordered: list[str] = []
        self._seen = 0

    def read(self) -> None:
        records = self.reader.read()
        for record in records[self._seen :]:
            address = decode_address(record.value())
            assert record.key() == address.device.encode()
            before = self.last.get(address.device)
            if before is not None and before.time > address.time:
                self.disordered.append(address.device)
            self.last[address.device] = address
        self._seen = len(records)

    def await_newest_of(self, devices: Devices, timeout_s: float = 60) -> None:
        """Wait until the last address of every device is that of its newest fix."""

        def current() -> bool:
            self.read()
            return self.last.keys() == devices.newest.keys() and all(
                self.last[name].fix_id == fix.id for name, fix in devices.newest.items()
            )

        await_condition(current, timeout_s, "every device has the address of its newest fix")


def committed(servers: str, group: str = "resolver") -> int:
    """Return the number of records that the group has committed, over all partitions."""
    consumer = Consumer(consumer_config(servers, "asking", group))
    try:
        partitions = consumer.list_topics(LOCATION, timeout=60).topics[LOCATION].partitions
        asked = [TopicPartition(LOCATION, number) for number in partitions]
        return sum(max(0, each.offset) for each in consumer.committed(asked, timeout=60))
    finally:
        consumer.close()


def check_places(addresses: Iterable[Address]) -> None:
    """Check that each address is what a new look-up of its fix gives."""
    geocoder = Geocoder.open()
    for address in addresses:
        result = geocoder.reverse(address.lat, address.lon)
        assert address.display_name == result.display_name
        assert address.address == result.address
        assert address.index_version == geocoder.index_version


@pytest.fixture
def devices(broker: Broker) -> Devices:
    return Devices(broker.address)


@pytest.fixture
def addresses(broker: Broker) -> Any:
    addresses = Addresses(broker)
    yield addresses
    addresses.reader.close()


def test_every_device_gets_the_address_of_its_newest_fix(
    broker: Broker, start_resolver: StartResolver, devices: Devices, addresses: Addresses
) -> None:
    devices.send(5)
    resolver = start_resolver()
    devices.send(20)
    addresses.await_newest_of(devices)
    assert not addresses.disordered
    check_places(addresses.last.values())
    assert resolver.stop() == 0
    # After a clean stop nothing has to be processed again.
    assert committed(broker.address) == devices.sent


@pytest.mark.long
def test_two_resolvers_lose_and_disorder_nothing_when_one_is_killed(
    broker: Broker, start_resolver: StartResolver, devices: Devices, addresses: Addresses
) -> None:
    first = start_resolver()
    second = start_resolver()
    devices.send(10)
    addresses.await_newest_of(devices)
    second.wait_for("restored partition")
    devices.send(5)
    first.stop(signal.SIGKILL)
    devices.send(15)
    addresses.await_newest_of(devices, 90)
    assert not addresses.disordered
    check_places(addresses.last.values())
    assert second.stop() == 0
    assert committed(broker.address) == devices.sent


def test_late_fixes_after_a_restart_change_nothing(
    start_resolver: StartResolver, devices: Devices, addresses: Addresses
) -> None:
    devices.send(3, late=0)
    before = start_resolver()
    addresses.await_newest_of(devices)
    assert before.stop() == 0
    late = [msgspec.structs.replace(fix, time=fix.time - 1, id="late") for fix in
            devices.newest.values()]  # fmt: skip
    for fix in late:
        devices.append(encode(fix), fix.device.encode())
    devices.send(1, late=0)
    start_resolver()
    addresses.await_newest_of(devices)
    assert not addresses.disordered
    assert all(address.fix_id != "late" for address in addresses.last.values())


def test_a_broker_that_is_killed_and_started_again_costs_nothing(
    broker: Broker, start_resolver: StartResolver, devices: Devices, addresses: Addresses
) -> None:
    resolver = start_resolver()
    devices.send(5)
    addresses.await_newest_of(devices)
    broker.kill()
    broker.start()
    devices.send(10)
    addresses.await_newest_of(devices, 60)
    assert not addresses.disordered
    assert resolver.stop() == 0
    assert committed(broker.address) == devices.sent


def test_bad_records_go_to_topic_error_and_traces_go_on(
    broker: Broker, start_resolver: StartResolver, devices: Devices, addresses: Addresses
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    fix = Fix(id="1", device="ann/phone", user="ann", lat=47.14, lon=9.52, time=5, received=6)
    devices.append(b"garbage", b"ann/phone", partition=2)
    devices.append(None, b"ann/phone", partition=2)
    devices.append(encode(fix), b"ann/phone", partition=2, headers=[("traceparent", trace)])
    devices.flush()
    start_resolver()
    errors = Reader(broker, ERROR)
    try:
        await_condition(lambda: len(errors.read()) == 2, 60, "two records in topic error")
        rejected = [decode_rejected(record.value()) for record in errors.records]
        assert [each.raw for each in rejected] == [b"garbage", b""]
        assert [(each.headers or {})["offset"] for each in rejected] == ["0", "1"]
        await_condition(lambda: len(addresses.reader.read()) == 1, 60, "the address")
        [record] = addresses.reader.records
        assert record.partition() == 2
        assert record.headers() == [("traceparent", trace.encode())]
    finally:
        errors.close()


def test_records_that_nobody_can_take_keep_no_resolver_from_starting(
    broker: Broker, start_resolver: StartResolver, devices: Devices, addresses: Addresses
) -> None:
    for value in MALFORMED_VALUES:
        devices.append(value, b"ann/phone")
        append_records(
            broker.address, [(topic, b"ann/phone", value) for topic in (ADDRESS, ERASURE)]
        )
    fix = Fix(id="1", device="eve/phone", user="eve", lat=47.14, lon=9.52, time=5, received=6)
    append_with_odd_header(broker.address, LOCATION, encode(fix), b"eve/phone")
    devices.newest["eve/phone"] = fix
    devices.send(1)
    resolver = start_resolver()
    errors = Reader(broker, ERROR)

    def resolved() -> bool:
        found = {record.key() for record in addresses.reader.read()}
        return {name.encode() for name in devices.newest} <= found

    try:
        await_condition(resolved, 60, "an address of every device")
        await_condition(lambda: len(errors.read()) == len(MALFORMED_VALUES), 60, "dead letters")
    finally:
        errors.close()
    assert resolver.stop() == 0


def test_a_dead_letter_that_is_refused_for_good_keeps_nobody_waiting(
    broker: Broker,
    start_resolver: StartResolver,
    devices: Devices,
    addresses: Addresses,
    supervisor: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limit(size: int) -> None:
        admin = AdminClient(client_config(broker.address, "test"))
        change = ConfigEntry("max.message.bytes", str(size), incremental_operation=_SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, ERROR, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(60)

    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
    limit(600)
    resolver = start_resolver()
    errors = Reader(broker, ERROR)
    try:
        # Shortened it fits; others of its batch are not refused with it.
        for raw in (b"garbage", random.Random(1).randbytes(100_000)):
            devices.append(raw, b"ann/phone", partition=2)
        devices.send(1)
        addresses.await_newest_of(devices)
        await_condition(lambda: len(errors.read()) == 2, 60, "two dead letters")
        found = {decode_rejected(each.value()).raw: each for each in errors.records}
        assert found.keys() == {b"garbage", b""}
        short = decode_rejected(found[b""].value())
        assert "(raw: none of 100000 bytes" in short.reason
        assert (short.headers or {})["topic"] == LOCATION
        # Not even that is taken.
        limit(100)
        devices.append(b"more garbage", b"ann/phone", partition=2)
        devices.send(1)
        resolver.wait_for(r"the refused record location-2 at \d+ is left out: topic error does")
        while b"STATUS=not ready: topic error refuses records: " not in supervisor.recv(1000):
            pass
        devices.send(1)
        addresses.await_newest_of(devices)
        limit(1_000_000)
        devices.append(b"taken", b"ann/phone", partition=2)
        devices.flush()
        while supervisor.recv(1000) != b"STATUS=ready":
            pass
        await_condition(lambda: len(errors.read()) == 3, 60, "the next dead letter")
    finally:
        errors.close()
    assert resolver.stop() == 0
    assert "starting again" not in resolver.output


def test_topics_of_different_sizes_are_refused_with_the_reason(broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    admin = AdminClient(client_config(broker.address, "admin"))
    for future in admin.create_partitions([NewPartitions(LOCATION, 6)]).values():
        future.result()
    resolver = Process("resolver", "--bootstrap-servers", broker.address)
    resolver.wait_for("location has 6 partitions and topic address has 4")
    assert resolver.wait() == 1


def test_a_resolver_waits_for_its_topics(tmp_path: Any) -> None:
    broker = Broker(tmp_path)
    resolver = Process("resolver", "--bootstrap-servers", broker.address)
    try:
        resolver.wait_for("waiting for the topics location and address")
        ensure_topics(broker.address, [Topic(LOCATION, 1), Topic(ADDRESS, 1)])
        resolver.wait_for("resolver ready")
        assert resolver.stop() == 0
    finally:
        resolver.stop(signal.SIGKILL)
        broker.process.stop()


def test_without_an_index_the_resolver_says_what_to_do(tmp_path: Any) -> None:
    resolver = Process("resolver", "--geo", str(tmp_path / "none.bin"))
    resolver.wait_for("no such index; `waylog geo world` builds")
    assert resolver.wait() == 2


def test_a_resolver_stays_small(
    start_resolver: StartResolver, broker: Broker, addresses: Addresses
) -> None:
    devices = Devices(broker.address, 20_000)
    resolver = start_resolver()
    # Each round is awaited, so that what is read ahead does not depend on the machine's speed:
    # without that, the memory is anything between 60 and 100 MB.
    for _ in range(8):
        devices.send(1)
        addresses.await_newest_of(devices)
    status = Path(f"/proc/{resolver.pid}/status").read_text(encoding="ascii")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    # 69 to 72 MB, of which 27 are mapped files that all processes share. The whole platform may
    # have 500 MB; this test detects growth: 200 bytes kept for each fix are 32 MB.
    assert peak < 90_000


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_resolver_that_is_stopped_does_not_wait_for_a_log_that_is_silent(
    broker: Broker, start_resolver: StartResolver, is_busy: bool
) -> None:
    devices = Devices(broker.address, 500)
    resolver = start_resolver()
    resolver.wait_for("restored partition 3")
    if is_busy:
        devices.send(20)
    try:
        os.kill(broker.process.pid, signal.SIGSTOP)
        assert resolver.stop(timeout_s=60) == 0
        resolver.wait_for("the log does not answer: what is not committed comes again")
        assert "revoked" not in resolver.output
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


def test_a_resolver_whose_broker_hangs_says_so_and_goes_on(
    broker: Broker, start_resolver: StartResolver
) -> None:
    resolver = start_resolver()
    try:
        os.kill(broker.process.pid, signal.SIGSTOP)
        resolver.wait_for(r"not ready: nothing heard from the log for \d+ s")
        os.kill(broker.process.pid, signal.SIGCONT)
        resolver.wait_for("the log answers again")
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


def test_a_resolver_that_waits_for_the_log_is_not_taken_for_one_that_hangs(
    tmp_path: Path, supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = next(topic for topic in TOPICS if topic.name == ADDRESS)
    cluster = ClusterWithRefusingTopic(tmp_path, topic)
    servers = cluster.start()
    # Only the resolver is under a supervisor.
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", str(1_500_000))
    try:
        resolver = Process("resolver", "--bootstrap-servers", servers)
        resolver.wait_for(f"restored partition {topic.partitions - 1}")
        cluster.refuse()
        Devices(servers, 1).send(1)
        supervisor.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                supervisor.recv(1000)
        supervisor.settimeout(60)
        # The first ones may be of the moments before it waited.
        for _ in range(8):
            while supervisor.recv(1000) != b"WATCHDOG=1":
                pass
        assert committed(servers) == 0
        cluster.accept()
        await_condition(lambda: committed(servers) == 1, 60, "the address is stored")
    finally:
        resolver.stop(signal.SIGKILL)
        cluster.stop()
