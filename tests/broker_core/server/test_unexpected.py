"""Unexpected failures: waiting requests get an error, and the broker ends if it has to."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker_core import errors
from broker_core.environment import Buffer, Environment, File, SystemClock, SystemDisk
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.compression import Compression
from broker_core.protocol.definitions import DELETE_RECORDS, FETCH, LIST_OFFSETS, PRODUCE
from broker_core.server.command import CALLBACKS_OF, OF_ONE_CLIENT
from broker_core.server.partitions.storage_watch import StorageWatch
from broker_core.server.runtime import Broker
from tests.broker_core.server.hasty_clock import HastyClock
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.broker_core.server.topics import all_open, create_topic
from tests.small_disk import small_disk
from waylog.process.background import end_on_failure

Start = Callable[..., Awaitable[Broker]]
Connect = Callable[[Broker], Awaitable[RawClient]]


def batch(value: bytes = b"v") -> bytes:
    return bytes(build_batch([(1_700_000_000_000, b"k", value, ())]))


class Clock(SystemClock):
    """A clock that the test moves."""

    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class FailingFile:
    """A file whose fdatasync, reads or writes fail if its disk says so."""

    def __init__(self, file: File, disk: FailingDisk, path: Path) -> None:
        self._file = file
        self._disk = disk
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def fdatasync(self) -> None:
        self._disk.check(self._path, self._disk.fails)
        self._file.fdatasync()

    def pread(self, size: int, position: int) -> bytes:
        self._disk.check(self._path, self._disk.fails_to_read)
        return self._file.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> int:
        self._disk.check(self._path, self._disk.fails_to_write)
        return self._file.pwrite(data, position)


class FailingDisk(SystemDisk):
    """A disk that fails for some files, with any exception."""

    def __init__(self) -> None:
        self.kind: type[FailingFile] = FailingFile
        self.may_return = threading.Event()
        self.may_return.set()
        #: Errors of fdatasync, of reads, writes and removals, by path pattern.
        self.fails: dict[str, Exception] = {}
        self.fails_to_read: dict[str, Exception] = {}
        self.fails_to_write: dict[str, Exception] = {}
        self.fails_to_remove: dict[str, Exception] = {}

    @staticmethod
    def check(path: Path, fails: dict[str, Exception]) -> None:
        for pattern, error in fails.items():
            if path.match(pattern):
                raise error

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        file = super().open(path, create=create, writable=writable)
        return cast(File, self.kind(file, self, path))

    def replace(self, path: Path, data: Buffer) -> None:
        self.check(path, self.fails_to_write)
        super().replace(path, data)

    def remove(self, path: Path) -> None:
        self.check(path, self.fails_to_remove)
        super().remove(path)


def result(answer: dict[str, Any]) -> int:
    code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), OSError(5, "Input/output error"), RuntimeError("?")],
    ids=["full", "broken", "a bug"],
)
async def test_who_waits_for_a_flush_that_fails_is_told_and_the_broker_ends(
    start: Start, connect: Connect, error: Exception
) -> None:
    disk = FailingDisk()
    broker = await start(Environment(Environment.real().clock, disk))
    create_topic(broker, "t", 1, {})
    create_topic(broker, "other", 1, {})
    client = await connect(broker)
    assert result(await client.call(PRODUCE, 8, produce_body("t", batch()))) == errors.NONE
    disk.fails["t-0/*.log"] = error
    code = result(await client.call(PRODUCE, 8, produce_body("t", batch())))
    assert code == errors.KafkaStorageError.code
    async with asyncio.timeout(60):
        await asyncio.wait((broker.failed,))
    assert broker.failed.exception() is not None
    assert "process" in broker.problems()
    # Until the broker ends, other partitions work.
    assert result(await client.call(PRODUCE, 8, produce_body("other", batch()))) == errors.NONE


@pytest.mark.parametrize("topic", ["opened", "wide"])
async def test_who_has_no_answer_because_of_a_bug_behind_the_first_turn_is_disconnected(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    disk = FailingDisk()
    broker = await start(Environment(HastyClock(), disk))
    create_topic(broker, "opened", 1, {"compression.type": "gzip"})
    create_topic(broker, "wide", 100, {})
    last = (await all_open(broker, topic)).partitions[-1]
    # So many bytes are opened by a thread.
    value = b"v" * (100_000 if topic == "opened" else 1)
    rows = [(1_700_000_000_000, b"k", value, ())]
    records = bytes(build_batch(rows, compression=Compression.LZ4))
    body = produce_body(topic, records, acks=1)
    body["topic_data"][0]["partition_data"] = [
        {"index": index, "records": records} for index in range(last.index + 1)
    ]
    disk.fails_to_write[f"{topic}-{last.index}/*.log"] = RuntimeError("nobody has thought of this")
    client, other = await connect(broker), await connect(broker)
    client.send(PRODUCE, 8, body)
    assert await client.is_closed_by_peer()
    assert "nobody has thought of this" in caplog.text
    assert "Produce version 8 of 127.0.0.1 failed" in caplog.text
    disk.fails_to_write.clear()
    assert result(await other.call(PRODUCE, 8, body)) == errors.NONE


async def test_who_has_no_answer_because_of_a_bug_in_a_later_piece_is_disconnected(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    broker = await start(Environment(HastyClock(0.0006), disk))
    create_topic(broker, "t", 1, {})
    client, other = await connect(broker), await connect(broker)
    assert result(await other.call(PRODUCE, 8, produce_body("t", batch()))) == errors.NONE
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": at, "offset": 1} for at in range(many)],
        }
        for name, many in (("nowhere", 1_000), ("t", 1))
    ]
    disk.fails_to_write["t-0/*"] = RuntimeError("nobody has thought of this")
    asked = {"topics": topics, "timeout_ms": 1_000}
    client.send(DELETE_RECORDS, 2, asked)
    assert await client.is_closed_by_peer()
    assert "nobody has thought of this" in caplog.text
    assert "DeleteRecords version 2 of 127.0.0.1 failed" in caplog.text
    disk.fails_to_write.clear()
    answer = await other.call(DELETE_RECORDS, 2, asked)
    assert answer["topics"][1]["partitions"][0]["low_watermark"] == 1


async def test_who_looks_for_a_time_where_a_bug_is_gets_an_answer(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    broker = await start(Environment(SystemClock(), disk))
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    assert result(await client.call(PRODUCE, 8, produce_body("t", batch()))) == errors.NONE
    disk.fails_to_read["t-0/*"] = RuntimeError("nobody has thought of this")
    asked = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": 1}]}]}
    answer = await client.call(LIST_OFFSETS, 6, asked)
    assert answer["topics"][0]["partitions"][0]["error_code"] == errors.UnknownServerError.code
    assert "nobody has thought of this" in caplog.text
    disk.fails_to_read.clear()
    answer = await client.call(LIST_OFFSETS, 6, asked)
    assert answer["topics"][0]["partitions"][0]["offset"] == 0


class Waiter:
    """An AppendWaiter that records its calls; `error` is raised by `durable`."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.told: list[int | None] = []

    def durable(self) -> None:
        if self._error is not None:
            raise self._error
        self.told.append(None)

    def failed(self, code: int) -> None:
        self.told.append(code)


async def test_who_waits_behind_an_append_that_cannot_be_acknowledged_is_told(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    (partition,) = create_topic(broker, "t", 1, {}).partitions
    (other,) = create_topic(broker, "other", 1, {}).partitions
    behind, elsewhere = Waiter(), Waiter()
    for where, waiter in (
        (partition, Waiter(RuntimeError("nobody has thought of this"))),
        (partition, behind),
        (other, elsewhere),
    ):
        where.append(bytearray(batch()), broker.clock.now_ms())
        broker.flusher.wait_durable(where, waiter, where.log.log_end_offset)
    async with asyncio.timeout(60):
        await asyncio.wait((broker.failed,))
        while not elsewhere.told:
            await asyncio.sleep(0.01)
    assert behind.told == [errors.KafkaStorageError.code]
    assert elsewhere.told == [None]
    assert "nobody has thought of this" in caplog.text


def test_a_write_that_has_failed_is_no_trouble_any_more_when_none_fails_for_a_while(
    tmp_path: Path,
) -> None:
    clock = Clock()
    watch = StorageWatch(tmp_path, Environment(clock, SystemDisk()))
    error = errors.KafkaStorageError("t-0")
    error.__cause__ = OSError(5, "Input/output error")
    watch.failed(error)
    for _ in range(4):
        watch.look()
        assert watch.reason is not None
        clock.now_s += 1
    clock.now_s += 2
    watch.look()
    assert watch.reason is None


@pytest.mark.parametrize("comes", ["records", "its time"])
async def test_a_fetch_that_fails_while_it_waits_costs_its_client_the_connection(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture, comes: str
) -> None:
    disk = FailingDisk()
    broker = await start(Environment(Environment.real().clock, disk))
    create_topic(broker, "t", 1, {})
    ended: list[Exception] = []
    end_on_failure(
        asyncio.get_running_loop(), ended.append, callbacks_of=CALLBACKS_OF, except_of=OF_ONE_CLIENT
    )
    reader, writer = await connect(broker), await connect(broker)
    assert result(await writer.call(PRODUCE, 8, produce_body("t", batch()))) == errors.NONE
    fetch = fetch_body("t", 0, max_wait_ms=60_000 if comes == "records" else 300, min_bytes=100_000)
    asking = asyncio.ensure_future(reader.call(FETCH, 11, fetch))
    (partition,) = (await all_open(broker, "t")).partitions
    async with asyncio.timeout(60):
        while not partition.fetches:
            await asyncio.sleep(0.01)
        disk.fails_to_read["t-0/*.log"] = RuntimeError("nobody has thought of this")
        if comes == "records":
            answer = await writer.call(PRODUCE, 8, produce_body("t", batch(bytes(200_000))))
            assert result(answer) == errors.NONE
        with pytest.raises(asyncio.IncompleteReadError):
            await asking
        assert result(await writer.call(PRODUCE, 8, produce_body("t", batch()))) == errors.NONE
    assert "Fetch version 11 of 127.0.0.1 failed" in caplog.text
    assert not ended
    assert not broker.failed.done()


class HangingFile(FailingFile):
    """A file whose fdatasync does not return until its disk says so."""

    def fdatasync(self) -> None:
        if self._path.match("t-0/*.log"):
            self._disk.may_return.wait(60)
        super().fdatasync()


class MovedClock(SystemClock):
    """The system's clocks, of which the test moves one ahead."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


async def test_a_flush_that_never_returns_is_told_and_ends_the_broker_at_last(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    clock, disk = MovedClock(), FailingDisk()
    disk.kind = HangingFile
    broker = await start(Environment(clock, disk))
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    disk.may_return.clear()
    try:
        asking = asyncio.ensure_future(client.call(PRODUCE, 8, produce_body("t", batch())))
        async with asyncio.timeout(60):
            while not broker.flusher.waited_s:
                await asyncio.sleep(0.01)
            assert "storage" not in broker.problems()
            clock.ahead_s = 30
            while "a flush takes more than 10 s" not in broker.problems().get("storage", ""):
                await asyncio.sleep(0.01)
            assert not broker.failed.done()
            clock.ahead_s = 150
            await asyncio.wait((broker.failed,))
    finally:
        disk.may_return.set()
    assert re.search("a flush has not returned for 1[5-9][0-9] s; the broker stops", caplog.text)
    await asyncio.gather(asking, return_exceptions=True)


async def test_retention_that_fails_at_one_partition_goes_on_at_the_others(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    disk.fails_to_remove["bad-0/*.log"] = RuntimeError("nobody has thought of this")
    environment = Environment(Environment.real().clock, disk)
    broker = await start(environment, log_retention_check_interval_ms="20")
    settings = {"retention.ms": "60000", "segment.bytes": "200"}
    for name in ("bad", "good"):
        (partition,) = create_topic(broker, name, 1, settings).partitions
        for i in range(20):
            partition.append(build_batch([(1_000, b"k", b"%d" % i, ())]), broker.clock.now_ms())
        broker.flusher.request(partition)
    good = broker.topics.get("good")
    assert good is not None
    async with asyncio.timeout(60):
        while good.partitions[0].log.log_start_offset < 15 or not caplog.text:
            await asyncio.sleep(0.01)
    assert "nobody has thought of this" in caplog.text
    assert not broker.failed.done()
    disk.fails_to_remove.clear()


async def health(broker: Broker) -> tuple[int, str]:
    endpoint = broker.metrics_endpoint
    assert endpoint is not None
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_a_full_disk_is_told_once_and_over_when_there_is_room(
    start: Start, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 16 * 1024 * 1024) as disk:
        broker = await start(log_dirs=str(disk.folder / "logs"), metrics_listener="127.0.0.1:0")
        create_topic(broker, "t", 1, {})
        client = await connect(broker)
        assert result(await client.call(PRODUCE, 8, produce_body("t", batch()))) == errors.NONE
        assert await health(broker) == (200, "ok\n")
        disk.fill()
        large = batch(bytes(8192))
        for _ in range(20):
            code = result(await client.call(PRODUCE, 8, produce_body("t", large)))
            assert code == errors.KafkaStorageError.code
        async with asyncio.timeout(60):
            while (await health(broker))[0] == 200:
                await asyncio.sleep(0.05)
        status, text = await health(broker)
        assert status == 503
        assert f"storage: no room left in {disk.folder / 'logs'}: 0 B free" in text
        said = [each for each in caplog.records if "No space left" in each.getMessage()]
        assert len(said) == 1
        assert "Traceback" not in caplog.text
        disk.free()
        async with asyncio.timeout(60):
            while (await health(broker))[0] != 200:
                await asyncio.sleep(0.05)
        assert result(await client.call(PRODUCE, 8, produce_body("t", large))) == errors.NONE
        assert not broker.failed.done()
        assert "can be written again" in caplog.text
        await broker.close()
