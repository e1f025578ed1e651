"""Transactions while a broker is stopped and started again, or its disk is full for a while."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker_core import errors
from broker_core.environment import Buffer, Environment, File, SystemDisk
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.broker_core.server.topics import create_topic, delete_topic, start_coordinators

Start = Callable[..., Awaitable[Broker]]
Connect = Callable[[Broker], Awaitable[RawClient]]


@pytest.fixture
async def start(start: Start) -> Start:
    """Start brokers that coordinate from the beginning."""

    async def run(*arguments: Any, **properties: str) -> Broker:
        broker = await start(*arguments, **properties)
        await start_coordinators(broker)
        return broker

    return run


class Transactor:
    """A transactional producer of the newest protocol, for which the broker adds partitions."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.identity = (-1, -1)
        self.sequence = 0

    async def init(self) -> None:
        """Get a new epoch."""
        answer = await self.client.call(
            INIT_PRODUCER_ID, 4, {"transactional_id": "x", "transaction_timeout_ms": 60_000}
        )
        assert answer["error_code"] == errors.NONE
        self.identity = answer["producer_id"], answer["producer_epoch"]
        self.sequence = 0

    async def write(self, topic: str) -> int:
        """Write one record; return its error code."""
        batch = build_batch(
            [(1, b"k", b"v", ())],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=self.sequence,
            is_transactional=True,
        )
        body = produce_body(topic, bytes(batch)) | {"transactional_id": "x"}
        answer = await self.client.call(PRODUCE, 12, body)
        code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
        self.sequence += not code
        return code

    @property
    def _fields(self) -> dict[str, Any]:
        return {
            "transactional_id": "x",
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
        }

    async def commit_offset(self, group_id: str, topic: str, offset: int) -> int:
        """Send TxnOffsetCommit as older clients do; return the error code."""
        added = await self.client.call(ADD_OFFSETS_TO_TXN, 3, self._fields | {"group_id": group_id})
        assert added["error_code"] == errors.NONE
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = await self.client.call(
            TXN_OFFSET_COMMIT,
            3,
            self._fields
            | {
                "group_id": group_id,
                "member_id": "",
                "topics": [{"name": topic, "partitions": [part]}],
            },
        )
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    def send_end(self, *, committed: bool) -> None:
        """Send EndTxn without waiting for the response."""
        self.client.send(END_TXN, 5, self._fields | {"committed": committed})

    async def end(self, *, committed: bool) -> int:
        """Call EndTxn; return the error code."""
        answer = await self.client.call(END_TXN, 5, self._fields | {"committed": committed})
        if not answer["error_code"]:
            self.identity = answer["producer_id"], answer["producer_epoch"]
            self.sequence = 0
        code: int = answer["error_code"]
        return code


async def committed_offset(client: RawClient, group_id: str, *, stable: bool) -> tuple[int, int]:
    """Return error code and committed offset of a group in partition 0 of t."""
    group = {"group_id": group_id, "topics": [{"name": "t", "partition_indexes": [0]}]}
    answer = await client.call(OFFSET_FETCH, 8, {"groups": [group], "require_stable": stable})
    part = answer["groups"][0]["topics"][0]["partitions"][0]
    return part["error_code"], part["committed_offset"]


async def stable_end(client: RawClient) -> int:
    """Return the last stable offset of partition 0 of t."""
    answer = await client.call(FETCH, 12, fetch_body("t", 0, isolation_level=1))
    end: int = answer["responses"][0]["partitions"][0]["last_stable_offset"]
    return end


async def test_an_open_transaction_and_its_offsets_outlive_a_restart(
    start: Start, connect: Connect
) -> None:
    broker = await start()
    create_topic(broker, "t", 1, {})
    mine = Transactor(await connect(broker))
    await mine.init()
    assert await mine.write("t") == errors.NONE
    assert await mine.commit_offset("g", "t", 7) == errors.NONE
    await broker.close()

    again = await start()
    mine.client = await connect(again)
    unstable = errors.UnstableOffsetCommit.code
    assert await committed_offset(mine.client, "g", stable=True) == (unstable, -1)
    assert await committed_offset(mine.client, "g", stable=False) == (errors.NONE, -1)
    assert await stable_end(mine.client) == 0
    assert await mine.end(committed=True) == errors.NONE
    assert await stable_end(mine.client) == 2
    assert await committed_offset(mine.client, "g", stable=True) == (errors.NONE, 7)
    await again.close()

    last = await start()
    client = await connect(last)
    assert await committed_offset(client, "g", stable=True) == (errors.NONE, 7)
    assert await stable_end(client) == 2


async def test_offsets_of_an_aborted_transaction_are_gone(start: Start, connect: Connect) -> None:
    broker = await start()
    create_topic(broker, "t", 1, {})
    mine = Transactor(await connect(broker))
    await mine.init()
    assert await mine.commit_offset("g", "t", 7) == errors.NONE
    assert await mine.end(committed=False) == errors.NONE
    assert await committed_offset(mine.client, "g", stable=True) == (errors.NONE, -1)
    zombie = Transactor(mine.client)
    zombie.identity = mine.identity[0], mine.identity[1] - 1
    part = {"partition_index": 0, "committed_offset": 9, "committed_metadata": ""}
    answer = await mine.client.call(
        TXN_OFFSET_COMMIT,
        3,
        zombie._fields
        | {"group_id": "g", "member_id": "", "topics": [{"name": "t", "partitions": [part]}]},
    )
    code = answer["topics"][0]["partitions"][0]["error_code"]
    assert code == errors.InvalidProducerEpoch.code


class FullFile:
    """A file whose disk may be full."""

    def __init__(self, file: File, disk: FullDisk, path: Path) -> None:
        self._file = file
        self._disk = disk
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Buffer, position: int) -> int:
        if self._disk.is_full_for and self._path.match(self._disk.is_full_for):
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.pwrite(data, position)


class FullDisk(SystemDisk):
    """A disk that is full for some files."""

    def __init__(self) -> None:
        self.is_full_for = ""

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        file = super().open(path, create=create, writable=writable)
        return cast(File, FullFile(file, self, path))


async def test_a_decision_is_carried_out_when_there_is_room_again(
    start: Start, connect: Connect
) -> None:
    disk = FullDisk()
    broker = await start(Environment(Environment.real().clock, disk))
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    mine = Transactor(client)
    await mine.init()
    assert await mine.write("t") == errors.NONE
    disk.is_full_for = "t-0/*.log"
    assert await mine.write("t") == errors.KafkaStorageError.code
    mine.send_end(committed=True)
    reader = await connect(broker)
    assert await stable_end(reader) == 0
    await asyncio.sleep(0)
    disk.is_full_for = ""
    _, answer = await client.receive(END_TXN, 5)
    assert answer["error_code"] == errors.NONE
    assert await stable_end(reader) == 2


async def test_a_transaction_that_cannot_be_stored_begins_nowhere(
    start: Start, connect: Connect
) -> None:
    disk = FullDisk()
    broker = await start(Environment(Environment.real().clock, disk))
    create_topic(broker, "t", 1, {})
    mine = Transactor(await connect(broker))
    await mine.init()
    disk.is_full_for = "__transaction_state-*/*.log"
    assert await mine.write("t") == errors.NotEnoughReplicas.code
    disk.is_full_for = ""
    assert await stable_end(mine.client) == 0
    assert await mine.write("t") == errors.NONE
    assert await mine.end(committed=True) == errors.NONE
    assert await stable_end(mine.client) == 2


async def test_a_topic_that_is_deleted_ends_no_transaction_of_others(
    start: Start, connect: Connect
) -> None:
    broker = await start()
    gone = create_topic(broker, "gone", 1, {})
    create_topic(broker, "t", 1, {})
    mine = Transactor(await connect(broker))
    await mine.init()
    assert await mine.write("gone") == errors.NONE
    mine.sequence = 0
    assert await mine.write("t") == errors.NONE
    delete_topic(broker, gone)
    assert await mine.end(committed=True) == errors.NONE
    assert await stable_end(mine.client) == 2
