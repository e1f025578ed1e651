"""Views survive their process: on a real broker, with new topics for each test."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from gateway.fixes.known_fixes import device_key, fix_key, use_secret
from gateway.fixes.siphash import KEY_BYTES
from gateway.tracks.track_points import unpacked
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from gateway.views.snapshots.view_keeper import ViewKeeper
from tests.consumers.running import Broker
from tests.gateway.records import NOW, StoredRecord, address, fix
from waylog.history.erasures import append_erasures
from waylog.kafka.clients import client_config, ensure_topics, producer_config
from waylog.messages import Address, Fix, encode
from waylog.observability.telemetry import now_ms

DEVICES = 40


class Log:
    """A broker, and the records that a test writes to it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._producer = Producer(producer_config(self.broker.address, "test", linger_ms=0))

    def append(self, *messages: Fix | Address) -> None:
        for message in messages:
            topic = "location" if isinstance(message, Fix) else "address"
            self._producer.produce(topic, encode(message), message.device.encode())
        assert self._producer.flush(60) == 0

    def erase(self, device: str) -> None:
        """Erase a device as `waylog history erase` does."""
        append_erasures(self.broker.address, [device], now_ms())
        self.bury(device)

    def bury(self, device: str) -> None:
        """Erase a device as versions without topic `erasure` did."""
        self._producer.produce("address", None, device.encode())
        assert self._producer.flush(60) == 0

    def start_again(self) -> None:
        """Replace the topics by new ones of the same names."""
        admin = AdminClient(client_config(self.broker.address, "test"))
        for done in admin.delete_topics(["location", "address", "erasure"]).values():
            done.result(60)
        ensure_topics(self.broker.address)

    def forget_everything(self) -> None:
        """Delete all records of topic `location`, as retention does in the end."""
        admin = AdminClient(client_config(self.broker.address, "test"))
        count = len(admin.list_topics("location", timeout=60).topics["location"].partitions)
        partitions = [TopicPartition("location", each, -1) for each in range(count)]
        for done in admin.delete_records(partitions).values():
            done.result(60)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(running.address)
    yield running
    running.process.stop()


@pytest.fixture
def log(broker: Broker) -> Iterator[Log]:
    running = Log(broker)
    yield running
    running.start_again()


class Views:
    """Both views, and their keeper."""

    def __init__(self, log: Log, folder: Path | None, **options: Any) -> None:
        self.locations, self.addresses = LocationView(), AddressView()
        self.keeper = ViewKeeper(
            log.broker.address,
            "test",
            self.locations,
            self.addresses,
            folder=folder,
            tail=5,
            **options,
        )

    def newest(self) -> dict[str, int]:
        return {name: fix.time for name in self.locations.devices() if (fix := self.fix(name))}

    def fix(self, device: str) -> Fix | None:
        return self.locations.latest(device)

    def track(self, device: str) -> list[int]:
        """Return the times of a device's track."""
        points = unpacked(b"".join(self.locations.track_pieces(device)))
        return [int(time) for time in points["time"]]

    def knows(self, *fixes: Fix) -> bool:
        """Tell whether all would be recognised as repeats, with a lookup on disk where needed."""
        known = self.locations.known_fixes
        assert known.times is not None
        return all(
            fix_key(each.device, each.id) in known
            and known.times.may_repeat(device_key(each.device), each.time)
            for each in fixes
        )


@asynccontextmanager
async def views(log: Log, folder: Path | None, **options: Any) -> AsyncIterator[Views]:
    started = Views(log, folder, **options)
    try:
        await started.keeper.start()
        yield started
    finally:
        await started.keeper.close()


async def until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail(what)


def fixes(times: Iterable[int]) -> list[Fix]:
    return [fix(f"u{time % DEVICES}/phone", NOW + time) for time in times]


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def copied(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put_back(folder: Path, copy: dict[Path, bytes]) -> None:
    """Restore a folder to the state left by a process that was killed when the copy was made."""
    for path in folder.rglob("*"):
        if path.is_file() and path not in copy:
            path.unlink()
    for path, content in copy.items():
        path.write_bytes(content)


async def test_what_was_known_is_known_again_although_the_log_has_lost_it(
    log: Log, tmp_path: Path
) -> None:
    sent = fixes(range(400))
    log.append(*sent, address("u1/phone"))
    async with views(log, tmp_path / "views") as first:
        expected = first.newest()
        assert len(expected) == DEVICES
    later = fixes(range(400, 500))
    log.append(*later)
    async with views(log, tmp_path / "views") as second:
        # No record is read twice except for tracks.
        assert second.locations.records == 100
        assert second.knows(*sent, *later)
        assert second.addresses.latest("u1/phone") == address("u1/phone")
        assert second.newest() == {each.device: each.time for each in later}
        # An older fix that was buffered.
        log.append(fix("u1/phone", NOW - 3_600_000))
        await until(lambda: second.locations.records == 101, "the late fix is not read")
        assert second.newest() == {each.device: each.time for each in later}
    log.forget_everything()
    async with views(log, tmp_path / "views") as third:
        assert third.newest() == second.newest()
        assert third.locations.records == 0


async def test_a_long_log_is_read_beside_everything_else(log: Log, tmp_path: Path) -> None:
    # The newest fix of each device is the first in the log.
    sent = fixes(range(1000, 0, -1))
    log.append(*sent, *(address(f"u{number}/phone") for number in range(DEVICES)))
    async with views(log, tmp_path / "views", behind_max=10) as first:
        assert first.locations.records < 100
        assert first.locations.reading_back or not first.keeper.unread
        await until(lambda: not first.keeper.unread, "the log is not read to its beginning")
        assert first.newest() == {each.device: each.time for each in reversed(sent)}
        assert len(first.addresses) == DEVICES
        assert not first.locations.reading_back
        assert not first.addresses.reading_back
        async with asyncio.timeout(60):
            # Sooner than the next regular snapshot.
            while not first.knows(*sent):
                await asyncio.sleep(0.05)
    async with views(log, tmp_path / "views", behind_max=10) as second:
        assert second.locations.records == 0
        assert second.newest() == first.newest()
        assert second.knows(*sent)


async def test_older_fixes_that_end_with_a_transaction_are_read_to_their_end(
    log: Log, tmp_path: Path
) -> None:
    producer = Producer(producer_config(log.broker.address, "test", transactional_id="test"))
    producer.init_transactions(20)
    producer.begin_transaction()
    sent = [fix("ada/phone", NOW + number) for number in range(100)]
    for each in sent:
        producer.produce("location", encode(each), each.device.encode())
    producer.commit_transaction(20)
    # The control record that ends the transaction precedes the records always read at once.
    log.append(*(fix("ada/phone", NOW - number) for number in range(1, 6)))
    async with views(log, tmp_path / "views", behind_max=10) as first:
        await until(lambda: not first.keeper.unread, "the log is not read to its beginning")
        await asyncio.wait_for(first.keeper.all_known.wait(), 60)
        assert first.fix("ada/phone") == sent[-1]
        assert first.knows(*sent)


async def test_a_process_that_was_killed_goes_on_where_its_snapshot_ends(
    log: Log, tmp_path: Path
) -> None:
    log.append(*fixes(range(200)))
    async with views(log, tmp_path / "views") as first:
        log.append(*fixes(range(200, 300)))
        await until(lambda: first.locations.records == 300, "not read")
        await first.keeper.save()
        snapshot = copied(tmp_path / "views")
        log.append(*fixes(range(300, 400)))
        await until(lambda: first.locations.records == 400, "not read")
    # The files as they were before the orderly end.
    put_back(tmp_path / "views", snapshot)
    (tmp_path / "views" / "1" / "snapshot.new").write_bytes(b"half")
    (tmp_path / "views" / "1" / "00000099.keys").write_bytes(b"half")
    async with views(log, tmp_path / "views") as second:
        assert second.locations.records == 100
        assert second.newest() == first.newest()
        assert second.knows(*fixes(range(400)))
        assert not (tmp_path / "views" / "1" / "00000099.keys").exists()


async def test_what_a_killed_process_had_not_read_yet_is_read_by_the_next(
    log: Log, tmp_path: Path
) -> None:
    sent = fixes(range(1000, 0, -1))
    log.append(*sent)
    async with views(log, tmp_path / "views", behind_max=10) as first:
        assert first.keeper.unread > 500
        await first.keeper.save()
        snapshot = copied(tmp_path / "views")
    put_back(tmp_path / "views", snapshot)
    async with views(log, tmp_path / "views", behind_max=10) as second:
        await until(lambda: not second.keeper.unread, "the log is not read to its beginning")
        assert second.newest() == {each.device: each.time for each in reversed(sent)}
        await second.keeper.save()  # only then the ids of older fixes are known
        assert second.knows(*sent)


async def test_snapshots_that_are_asked_for_at_once_are_written_one_after_the_other(
    log: Log, tmp_path: Path
) -> None:
    sent = fixes(range(100))
    async with views(log, tmp_path / "views") as first:
        for start in range(0, len(sent), 20):
            log.append(*sent[start : start + 20])
            await until(lambda: first.knows(*sent[: start + 20]), "a fix is not known")  # noqa: B023
            await asyncio.gather(*(first.keeper.save() for _ in range(3)))
    async with views(log, tmp_path / "views") as second:
        assert second.knows(*sent)


async def test_what_a_process_has_read_of_older_fixes_when_it_is_killed_is_not_taken_for_all(
    log: Log, tmp_path: Path
) -> None:
    # In one partition, and more than one fetch response holds, even compressed.
    sent = [fix("ada/phone", NOW - n, id=secrets.token_hex(100)) for n in range(2_000)]
    for start in range(0, len(sent), 200):
        log.append(*sent[start : start + 200])
    async with views(log, tmp_path / "views", behind_max=10) as first:
        most = first.keeper.unread
        async with asyncio.timeout(60):
            while first.keeper.unread == most:
                await asyncio.sleep(0)
        assert first.keeper.unread  # the reader pauses after each response
        await first.keeper.save()
        snapshot = copied(tmp_path / "views")
    put_back(tmp_path / "views", snapshot)
    async with views(log, tmp_path / "views", behind_max=10) as second:
        assert 0 < second.keeper.unread < most
        await until(lambda: not second.keeper.unread, "the log is not read to its beginning")
        await second.keeper.save()
        assert second.fix("ada/phone") == sent[0]
        assert second.knows(*sent)


async def test_the_newest_part_of_a_track_is_there_again_soon(log: Log, tmp_path: Path) -> None:
    log.append(*(fix("ada/phone", NOW + number) for number in range(20)))
    async with views(log, tmp_path / "views"):
        pass
    async with views(log, tmp_path / "views") as second:
        expected = [NOW + number for number in range(15, 20)]
        await until(lambda: second.track("ada/phone") == expected, "not the newest part alone")
        assert second.locations.records == 0


async def test_what_comes_while_a_snapshot_is_written_is_read_again(
    log: Log, tmp_path: Path
) -> None:
    log.append(*fixes(range(DEVICES)))
    async with views(log, tmp_path / "views") as first:
        before = dict(first.locations.positions)
        log.append(fix("u1/phone", NOW + 500))
        await until(lambda: first.locations.positions != before, "not read")
        ((partition, offset),) = first.locations.positions.items() - before.items()
        late = fix("u1/phone", NOW + 1_000)
        saving = asyncio.create_task(first.keeper.save())
        await asyncio.sleep(0)  # it has begun, and has collected its content
        first.locations.on_records(
            [StoredRecord(late.device.encode(), encode(late), offset, partition)]
        )
        assert first.fix("u1/phone") == late
        await saving
        snapshot = copied(tmp_path / "views")
    # With enough records after it that it is not among those always read.
    log.append(late, *(fix("u1/phone", NOW - number) for number in range(1, 11)))
    put_back(tmp_path / "views", snapshot)
    async with views(log, tmp_path / "views") as second:
        assert second.fix("u1/phone") == late
        assert second.knows(late)


async def test_a_device_that_is_erased_while_a_snapshot_is_taken_is_not_in_it(
    log: Log, tmp_path: Path
) -> None:
    log.append(*(fix(f"u{number}/phone") for number in range(600)))
    async with views(log, tmp_path / "views") as first:
        saving = asyncio.create_task(first.keeper.save())
        await asyncio.sleep(0)  # it has begun: the first devices have been taken
        kept, *_, erased = first.newest()
        first.locations.forget(erased, now_ms())
        await saving
        assert erased.encode() not in files(tmp_path / "views")
        assert kept.encode() in files(tmp_path / "views")


async def test_ids_that_could_not_be_written_are_written_with_the_next_snapshot(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sent = fixes(range(100))
    log.append(*sent)
    async with views(log, tmp_path / "views") as first:
        in_the_way = tmp_path / "views" / "1" / "snapshot.new"
        in_the_way.mkdir()
        await first.keeper.save()
        await first.keeper.save()
        assert caplog.text.count("cannot be written; trying again") == 1
        # No key files are left behind, because the disk may be nearly full.
        assert not list((tmp_path / "views" / "1").glob("*.keys"))
        in_the_way.rmdir()
    async with views(log, tmp_path / "views") as second:
        assert second.locations.records == 0
        assert second.knows(*sent)


async def test_ids_that_are_too_many_to_wait_for_the_disk_are_read_by_the_next_process(
    log: Log, tmp_path: Path
) -> None:
    log.append(*fixes(range(100)))
    async with views(log, tmp_path / "views", unwritten_bytes_max=80) as first:
        await first.keeper.save()
        known = first.locations.known_fixes
        in_the_way = tmp_path / "views" / "1" / "snapshot.new"
        in_the_way.mkdir()
        for numbers in (range(1, 11), range(11, 21)):
            for number in numbers:
                known.add_old(number)
            await first.keeper.save()
        assert known.unsaved == 10  # what waits for the disk is bounded
        log.append(*fixes(range(100, 200)))
        await until(lambda: first.locations.records == 200, "not read")
        in_the_way.rmdir()
    async with views(log, tmp_path / "views") as second:
        assert second.locations.records == 100
        assert second.knows(*fixes(range(200)))


@pytest.mark.long
async def test_ids_for_which_there_was_no_memory_are_read_by_the_next_process(
    log: Log, tmp_path: Path
) -> None:
    log.append(*fixes(range(100)))
    async with views(log, tmp_path / "views", unwritten_bytes_max=80) as first:
        await first.keeper.save()
        known = first.locations.known_fixes
        in_the_way = tmp_path / "views" / "1" / "snapshot.new"
        in_the_way.mkdir()
        for number in range(1, 11):
            known.add_old(number)
        await first.keeper.save()  # these wait for the disk, and all later ones behind them
        most = 4 * 1024 * 1024
        for number in range(11, most + 11):
            known.add_old(number)
        assert known.unsaved == most
        log.append(*fixes(range(100, 200)))
        await until(lambda: first.locations.records == 200, "not read")
        in_the_way.rmdir()
        while known.unsaved:
            await first.keeper.save()
    async with views(log, tmp_path / "views") as second:
        assert second.knows(*fixes(range(200)))


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "secret"])
async def test_a_snapshot_that_does_not_fit_is_built_again(
    log: Log, tmp_path: Path, damage: str
) -> None:
    log.append(*fixes(range(100)))
    async with views(log, tmp_path / "views") as first:
        pass
    path = tmp_path / "views" / "1" / "snapshot"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "changed":
        content[-200] ^= 1
    elif damage == "secret":
        # The secret of another installation: none of the keys matches a fix of this one.
        use_secret(secrets.token_bytes(KEY_BYTES))
    else:
        log.start_again()
        log.append(*fixes(range(100)), fix("bob/phone"))
    path.write_bytes(content)
    async with views(log, tmp_path / "views") as second:
        assert second.newest().items() >= first.newest().items()
        assert second.locations.records == 100 + (damage == "foreign")
        assert second.knows(*fixes(range(100)))


async def test_an_erased_device_is_gone_from_the_disk_at_once_and_does_not_come_back(
    log: Log, tmp_path: Path
) -> None:
    secret = fix("ada/phone", NOW, lat=12.3456789)
    log.append(secret, *fixes(range(100)), address("ada/phone", lat=12.3456789))
    async with views(log, tmp_path / "views") as first:
        await first.keeper.save()
        assert b"12.3456789" in files(tmp_path / "views")
        log.erase("ada/phone")
        async with asyncio.timeout(60):
            # Sooner than the next regular snapshot.
            while b"12.3456789" in files(tmp_path / "views"):
                await asyncio.sleep(0.05)
        assert first.fix("ada/phone") is None
        assert b"ada/phone" not in files(tmp_path / "views")
    # The log still has it, also among the records read again for tracks.
    async with views(log, tmp_path / "views") as second:
        assert second.fix("ada/phone") is None
        assert not list(second.locations.track_pieces("ada/phone"))
        assert second.addresses.latest("ada/phone") is None
    async with views(log, None, behind_max=1) as third:
        await until(lambda: not third.keeper.unread, "the log is not read")
        assert third.fix("ada/phone") is None
        assert third.addresses.latest("ada/phone") is None


async def test_an_erased_device_is_gone_from_the_disk_when_that_takes_something_again(
    log: Log, tmp_path: Path
) -> None:
    log.append(fix("ada/phone", NOW, lat=12.3456789))
    async with views(log, tmp_path / "views", save_s=0.3) as first:
        snapshot = tmp_path / "views" / "1" / "snapshot"
        await until(snapshot.exists, "no first snapshot")
        in_the_way = tmp_path / "views" / "1" / "snapshot.new"
        in_the_way.mkdir()
        first.locations.forget("ada/phone", now_ms())
        await first.keeper.save()
        in_the_way.rmdir()
        # No other records come.
        await until(lambda: b"12.3456789" not in files(snapshot.parent), "not tried again")


@pytest.mark.parametrize("tombstone", [True, False])
async def test_a_tombstone_or_an_erasure_alone_is_honoured(log: Log, tombstone: bool) -> None:
    log.append(fix("ada/phone"), fix("bob/phone"), address("ada/phone"))
    if tombstone:
        log.bury("ada/phone")
    else:
        append_erasures(log.broker.address, ["ada/phone"], now_ms())
    async with views(log, None) as first:
        assert list(first.newest()) == ["bob/phone"]
        assert not first.track("ada/phone")
        assert first.addresses.latest("ada/phone") is None


async def test_nothing_is_read_any_more_when_it_has_ended(log: Log, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with views(log, tmp_path / "views"):
        assert asyncio.all_tasks() > before
    assert asyncio.all_tasks() == before


async def test_gateways_of_one_machine_have_a_folder_each(log: Log, tmp_path: Path) -> None:
    log.append(*fixes(range(100)))
    async with views(log, tmp_path / "views") as one, views(log, tmp_path / "views") as other:
        assert one.newest() == other.newest()
    assert sorted(path.name for path in (tmp_path / "views").iterdir()) == ["1", "2"]
    for path in (tmp_path / "views").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


async def test_where_nothing_can_be_kept_the_log_is_read(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(*fixes(range(100)))
    (tmp_path / "views").write_text("a file")
    async with views(log, tmp_path / "views") as first:
        assert len(first.newest()) == DEVICES
    assert "not kept beyond this process" in caplog.text
