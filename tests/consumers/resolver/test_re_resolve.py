"""Trying another index before it is used: re-resolving beside the resolver, and comparing."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from consumers.resolver.comparison import Comparison
from consumers.resolver.re_resolve import ReResolveFailed, ReResolver, Start, topic_of
from consumers.worker.partitions import PartitionReader
from geoservice.index.store import WORLD_PATH
from geoservice.reverse.geocoder import Geocoder
from tests.consumers.running import WAYLOG, Broker, Process, await_condition
from tests.consumers.worker.test_worker import Addresses, Reader
from tests.geoservice.index_files import write_renamed
from waylog.kafka.clients import client_config, ensure_topics, producer_config
from waylog.kafka.topics import ADDRESS, ERROR, LOCATION, Topic
from waylog.messages import Address, Fix, decode_address, encode, fix_id

#: Six hours ago: younger than what the topic's retention takes, and before now with all fixes.
BEGAN = time_ns() // 1_000_000_000 * 1000 - 6 * 3_600_000


@pytest.fixture(scope="module")
def new_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an index in which Vaduz has another name."""
    path: Path = tmp_path_factory.mktemp("index") / "new.bin"
    write_renamed(WORLD_PATH, path, b"Vaduz", b"Zuduv")
    return path


def delivered(error: KafkaError | None, _: Message) -> None:
    assert error is None, error


class Fixes:
    """Fixes in the log, of devices in Vaduz (even numbers) and Vienna (odd ones)."""

    def __init__(self, broker: Broker, devices: int = 40) -> None:
        self.newest: dict[str, Fix] = {}
        self.sent = 0
        self._devices = devices
        self._producer = Producer(producer_config(broker.address, "fixes"))
        self._random = random.Random(7)

    def send(self, rounds: int, late: float = 0.1) -> None:
        for _ in range(rounds):
            for number in range(self._devices):
                self.sent += 1
                name = f"user{number}/phone"
                time = BEGAN + self.sent * 1000
                if self._random.random() < late:
                    time -= self._random.randrange(self._devices * 5) * 1000
                lat, lon = (47.141, 9.5209) if number % 2 == 0 else (48.2082, 16.3738)
                lat += self._random.uniform(-1e-4, 1e-4)
                fix = Fix(
                    id=fix_id(name, time, lat, lon), device=name, user=f"user{number}",
                    lat=lat, lon=lon, time=time, received=time,
                )  # fmt: skip
                if name not in self.newest or time >= self.newest[name].time:
                    self.newest[name] = fix
                self._producer.produce(
                    LOCATION, encode(fix), name.encode(), timestamp=time, on_delivery=delivered
                )
        assert self._producer.flush(60) == 0


def last_addresses(broker: Broker, topic: str) -> dict[str, Address]:
    """Return the last record of each device, as compaction would leave it."""
    reader = Reader(broker, topic)
    try:
        last: dict[str, Address] = {}
        quiet = 0
        while quiet < 5:
            count = len(reader.records)
            quiet = 0 if len(reader.read()) > count else quiet + 1
        for record in reader.records:
            address = decode_address(record.value())
            last[address.device] = address
        return last
    finally:
        reader.close()


def waylog(*words: Any, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*WAYLOG, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def fixes(broker: Broker) -> Fixes:
    return Fixes(broker)


@pytest.fixture
def addresses(broker: Broker) -> Iterator[Addresses]:
    addresses = Addresses(broker)
    yield addresses
    addresses.reader.close()


def test_a_new_index_is_tried_beside_the_resolver_at_work_and_then_taken(
    broker: Broker,
    start_resolver: Callable[..., Process],
    fixes: Fixes,
    addresses: Addresses,
    new_index: Path,
    tmp_path: Path,
) -> None:
    served = tmp_path / "served.bin"
    served.write_bytes(WORLD_PATH.read_bytes())
    resolver = start_resolver("--geo", served)
    fixes.send(10)
    addresses.await_newest_of(fixes)  # type: ignore[arg-type]
    servers = ("--bootstrap-servers", broker.address)

    done = waylog("resolver", *servers, "--from-earliest", "--index", new_index, "--json")
    outcome = json.loads(done.stdout)
    version = Geocoder.open(new_index).index_version
    assert outcome["topic"] == topic_of(version) == f"address-{version}"
    assert (outcome["records"], outcome["devices"]) == (fixes.sent, 40)
    assert outcome["finished"] and not outcome["resumed"]
    again = last_addresses(broker, outcome["topic"])
    assert {name: each.fix_id for name, each in again.items()} == {
        name: fix.id for name, fix in fixes.newest.items()
    }
    assert {each.index_version for each in again.values()} == {version}
    assert again["user0/phone"].address["town"] == "Zuduv"

    # None of these results has reached the topic that devices see.
    addresses.read()
    assert {each.index_version for each in addresses.last.values()} == {
        Geocoder.open().index_version
    }
    for other in (("--topic", outcome["topic"]), ("--index", new_index)):
        done = waylog("resolver", "compare", *servers, *other, "--json")
        comparison = json.loads(done.stdout)
        assert (comparison["compared"], comparison["same"], comparison["different"]) == (40, 20, 20)
        # The state has the name of its capital, so it changes too.
        differences = {"changed": 20, "added": 0, "removed": 0}
        assert comparison["members"] == {"town": differences, "state": differences}
        assert comparison["after"] == {version: 40}
        assert len(comparison["examples"]) == 20
    text = waylog("resolver", "compare", *servers, "--index", new_index, "--examples", 1).stdout
    assert "40 devices compared: 20 same, 20 different" in text
    assert "now   Vaduz, Liechtenstein\n  then  Zuduv, Liechtenstein" in text

    # The resolver switches when the new file is put in place.
    beside = tmp_path / "beside.bin"
    beside.write_bytes(new_index.read_bytes())
    beside.replace(served)
    resolver.wait_for(f"index {version} replaces")
    fixes.send(1, late=0)
    addresses.await_newest_of(fixes)  # type: ignore[arg-type]
    assert not addresses.disordered
    assert {each.index_version for each in addresses.last.values()} == {version}
    assert resolver.stop() == 0


def test_it_goes_on_where_it_was_stopped(broker: Broker, fixes: Fixes, new_index: Path) -> None:
    fixes.send(50)
    geocoder = Geocoder.open(new_index)

    def stop_early(done: int, _total: int) -> None:
        if done:
            run.stop()

    run = ReResolver(broker.address, geocoder, Start(), progress=stop_early)
    first = run.run()
    assert not first.finished and 0 < first.records < fixes.sent
    fixes.send(2)
    seen: list[tuple[int, int]] = []
    second = ReResolver(
        broker.address, geocoder, Start(), progress=lambda *each: seen.append(each)
    ).run()
    assert second.finished and second.resumed
    assert first.records + second.records == fixes.sent
    assert seen[0] == (0, second.records) and seen[-1] == (second.records, second.records)
    again = last_addresses(broker, first.topic)
    assert {name: each.fix_id for name, each in again.items()} == {
        name: fix.id for name, fix in fixes.newest.items()
    }
    third = ReResolver(broker.address, geocoder, Start(), restart=True).run()
    assert (third.records, third.resumed) == (fixes.sent, False)


def test_it_begins_where_it_is_told(broker: Broker, fixes: Fixes, new_index: Path) -> None:
    fixes.send(10, late=0)
    geocoder = Geocoder.open(new_index)
    cut = BEGAN + 1000 * (fixes.sent - 80 + 1)
    later = ReResolver(broker.address, geocoder, Start(time_ms=cut), topic="later").run()
    assert later.records == 80
    beyond = ReResolver(broker.address, geocoder, Start(time_ms=cut * 2), topic="beyond").run()
    assert (beyond.records, beyond.finished) == (0, True)
    by_offset = ReResolver(broker.address, geocoder, Start(offset=5), topic="offset").run()
    assert by_offset.records == fixes.sent - 5 * 4
    whole = ReResolver(broker.address, geocoder, Start(offset=0), topic="whole").run()
    assert whole.records == fixes.sent


def test_records_that_are_no_fixes_are_not_reported_again(
    broker: Broker, fixes: Fixes, new_index: Path
) -> None:
    producer = Producer(producer_config(broker.address, "garbage"))
    producer.produce(LOCATION, b"garbage", b"x")
    assert producer.flush(60) == 0
    fixes.send(1)
    done = ReResolver(broker.address, Geocoder.open(new_index), Start()).run()
    assert (done.rejected, done.addresses) == (1, 40)
    errors = Reader(broker, ERROR)
    try:
        assert errors.read() == []
    finally:
        errors.close()


def test_what_was_not_stored_is_resolved_by_the_next_run(
    broker: Broker, fixes: Fixes, new_index: Path
) -> None:
    fixes.send(1)
    ensure_topics(broker.address, [Topic("small", 4, {"max.message.bytes": "100"})])
    with pytest.raises(ReResolveFailed, match="the results were not stored"):
        ReResolver(broker.address, Geocoder.open(new_index), Start(), topic="small").run()
    reader = PartitionReader(client_config(broker.address, "test"), "re-resolve-small")
    try:
        assert [reader.committed(LOCATION, partition) for partition in range(4)] == [None] * 4
    finally:
        reader.close()


def test_the_topic_of_the_resolvers_is_refused(broker: Broker, new_index: Path) -> None:
    with pytest.raises(ReResolveFailed, match="has its own writers"):
        ReResolver(broker.address, Geocoder.open(new_index), Start(), topic=ADDRESS)


def test_a_comparison_with_nothing_says_how_to_get_something(broker: Broker) -> None:
    done = waylog(
        "resolver", "compare", "--bootstrap-servers", broker.address, "--topic", "none", status=1
    )
    assert "waylog resolver --from-earliest --index INDEX" in done.stderr


@pytest.mark.long
def test_a_killed_run_loses_nothing(
    broker: Broker, fixes: Fixes, new_index: Path, tmp_path: Path
) -> None:
    fixes.send(400)
    words = ("--bootstrap-servers", broker.address, "--from-earliest", "--index", str(new_index))
    process = Process("resolver", *words)
    topic = topic_of(Geocoder.open(new_index).index_version)

    def begun() -> bool:
        return bool(last_addresses(broker, topic))

    try:
        await_condition(begun, 60, "the first addresses")
    finally:
        process.stop(signal.SIGKILL)
    waylog("resolver", *words)
    assert {name: each.fix_id for name, each in last_addresses(broker, topic).items()} == {
        name: fix.id for name, fix in fixes.newest.items()
    }


def make_address(number: int, **members: str) -> Address:
    return Address(
        device=f"u/{number}", fix_id="f", time=1, lat=0, lon=0, display_name="",
        address=members, index_version="old",
    )  # fmt: skip


def test_differences_are_counted_by_member() -> None:
    comparison = Comparison(examples_max=1)
    comparison.add(make_address(1, road="A", city="C"), make_address(1, road="B", city="C"))
    comparison.add(make_address(2, road="A"), make_address(2, road="A", house_number="5"))
    comparison.add(make_address(3, road="A", suburb="S"), make_address(3, suburb="T"))
    comparison.add(make_address(4, road="A"), make_address(4, road="A"))
    comparison.add(make_address(5, road="A"), None)
    newer = make_address(6, road="Z")
    newer.fix_id = "g"
    comparison.add(make_address(6, road="A"), newer)
    assert (comparison.compared, comparison.same, comparison.different) == (4, 1, 3)
    assert (comparison.missing, comparison.other_fix) == (1, 1)
    counted = {
        name: (member.changed, member.added, member.removed)
        for name, member in comparison.members.items()
    }
    assert counted == {"road": (1, 0, 1), "house_number": (0, 1, 0), "suburb": (1, 0, 0)}
    [example] = comparison.examples
    assert (example.device, example.members) == ("u/1", ["road"])


def test_addresses_of_silent_devices_are_renewed_when_the_index_changes(
    broker: Broker,
    start_resolver: Callable[..., Process],
    fixes: Fixes,
    addresses: Addresses,
    new_index: Path,
    tmp_path: Path,
) -> None:
    served = tmp_path / "served.bin"
    served.write_bytes(WORLD_PATH.read_bytes())
    resolver = start_resolver("--geo", served, "--renew")
    fixes.send(2)
    addresses.await_newest_of(fixes)  # type: ignore[arg-type]
    beside = tmp_path / "beside.bin"
    beside.write_bytes(new_index.read_bytes())
    beside.replace(served)
    version = Geocoder.open(new_index).index_version

    def renewed() -> bool:
        addresses.read()
        return {each.index_version for each in addresses.last.values()} == {version}

    await_condition(renewed, 60, "all addresses out of the new index")
    assert {name: each.fix_id for name, each in addresses.last.items()} == {
        name: fix.id for name, fix in fixes.newest.items()
    }
    assert addresses.last["user0/phone"].address["town"] == "Zuduv"
    assert not addresses.disordered
    # A renewed address is left alone, also by the next resolver.
    count = len(addresses.reader.records)
    assert resolver.stop() == 0
    start_resolver("--geo", served, "--renew").wait_for("restored partition 3")
    fixes.send(1, late=0)
    addresses.await_newest_of(fixes)  # type: ignore[arg-type]
    assert len(addresses.reader.records) == count + 40
