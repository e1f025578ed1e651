"""Damaged files: the broker names the file, and does not start as if it were absent."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker_core import errors
from broker_core.errors import KafkaStorageError
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from broker_core.protocol.stored_batches import scan_batches
from broker_core.server.cluster.clean_shutdown import UNKNOWN
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import all_open, create_topic, delete_topic, start_coordinators
from waylog.cli import main
from waylog.config import ConfigError

Start = Callable[..., Awaitable[Broker]]
Connect = Callable[[Broker], Awaitable[RawClient]]


def fill(broker: Broker, topic: str, index: int, count: int = 5) -> None:
    """Append records to a partition."""
    partition = broker.topics.partition(topic, index)
    assert partition is not None
    for _ in range(count):
        partition.append(bytearray(build_batch([(1, None, b"value", ())])), broker.clock.now_ms())


def end_of(broker: Broker, topic: str, index: int) -> int:
    """Return the log end offset of a partition that is open."""
    partition = broker.topics.partition(topic, index)
    assert partition is not None
    return partition.log.log_end_offset


def told(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """Return the lines of at least this level."""
    return [each.getMessage() for each in caplog.records if each.levelno >= level]


def verify(folder: Path) -> int:
    """Run `waylog log verify`; return its exit status."""
    return main(["log", "verify", "--data", str(folder)])


async def stopped_with_records(start: Start, *, partitions: int = 3) -> None:
    """Run a broker with records in each partition of topic `t`, and stop it."""
    broker = await start()
    create_topic(broker, "t", partitions, {})
    for index in range(partitions):
        fill(broker, "t", index)
    await broker.close()


@pytest.mark.parametrize("content", [b"", b"\xff\x00{garbage", b"[]", b'{"topics": {"t": {}}}'])
@pytest.mark.parametrize("name", ["topics.json", "producer_ids", "meta.properties"])
async def test_a_damaged_file_is_named_and_nothing_is_changed(
    start: Start, tmp_path: Path, name: str, content: bytes
) -> None:
    broker = await start()
    create_topic(broker, "t", 1, {})
    await broker.close()
    path = tmp_path / "logs" / name
    # The first two are there only before the first start of this version.
    right = path.read_bytes() if path.exists() else None
    path.write_bytes(content)
    before = {each: each.stat().st_mtime_ns for each in path.parent.rglob("*")}
    with pytest.raises(ConfigError, match=name):
        await start()
    assert {each: each.stat().st_mtime_ns for each in path.parent.rglob("*")} == before
    assert path.read_bytes() == content
    # With the file restored the broker starts: the failed start released its directory lock.
    if right is None:
        path.unlink()
    else:
        path.write_bytes(right)
    again = await start()
    assert again.topics.get("t") is not None


async def test_entries_of_the_metadata_that_are_gone_are_no_reason_to_begin_without(
    start: Start, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    broker = await start()
    await broker.close()
    (entries,) = (logs / "metadata").glob("entries-*")
    before = entries.read_bytes()
    await stopped_with_records(start)
    whole = entries.read_bytes()
    assert whole.startswith(before)
    entries.write_bytes(before)
    with pytest.raises(KafkaStorageError, match=r"are missing.*put a copy of .*metadata back"):
        await start()
    assert not list(logs.glob("*-stray"))
    entries.write_bytes(whole)
    assert end_of(await start(), "t", 0) == 5


async def test_logs_of_unknown_topics_are_told_in_one_line_and_taken_back(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = tmp_path / "logs"
    broker = await start()
    await broker.close()
    shutil.copytree(logs / "metadata", tmp_path / "before")
    await stopped_with_records(start, partitions=7)
    shutil.move(logs / "metadata", tmp_path / "after")
    shutil.move(tmp_path / "before", logs / "metadata")
    caplog.clear()
    broker = await start()
    (said,) = told(caplog)
    assert said.startswith("7 folders in ")
    assert "t-0, t-1, t-2, t-3, t-4 and 2 more" in said
    assert len(list(logs.glob("t-*-stray"))) == 7
    # Another topic of that name must not keep the right one from its logs.
    create_topic(broker, "t", 1, {})
    await broker.close()
    shutil.rmtree(logs / "metadata")
    shutil.move(tmp_path / "after", logs / "metadata")
    broker = await start()
    assert [end_of(broker, "t", index) for index in range(7)] == [5] * 7
    assert len(list(logs.glob("t-*-stray"))) == 1


@pytest.mark.parametrize("how", ["folder", "content"])
async def test_a_log_that_is_gone_is_missed_and_gives_no_offset_twice(
    start: Start,
    connect: Connect,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    logs = tmp_path / "logs"
    await stopped_with_records(start)
    kept = tmp_path / "kept"
    shutil.copytree(logs / "t-1", kept)
    shutil.rmtree(logs / "t-1")
    if how == "content":
        (logs / "t-1").mkdir()
    assert verify(logs) == 1
    assert f"{logs / 't-1'}: the log was here, and is gone" in capsys.readouterr().out
    for _ in range(2):
        caplog.clear()
        broker = await start()
        (said,) = told(caplog)
        assert said.startswith(f"t-1 stays offline: the log in {logs / 't-1'} is gone")
        assert "partitions" in broker.problems()
        client = await connect(broker)
        asked = {"replica_id": -1, "topics": [{"name": "t", "partitions": [
            {"partition_index": index, "timestamp": -1} for index in range(3)
        ]}]}  # fmt: skip
        (answered,) = (await client.call(LIST_OFFSETS, 1, asked))["topics"]
        codes = [each["error_code"] for each in answered["partitions"]]
        assert codes == [0, errors.KafkaStorageError.code, 0]
        await client.close()
        # Decisions about other partitions hold.
        name = f"u{len(list(broker.topics))}"
        create_topic(broker, name, 1, {})
        await broker.close()
    shutil.rmtree(logs / "t-1", ignore_errors=True)
    shutil.move(kept, logs / "t-1")
    assert end_of(await start(), "t", 1) == 5


async def test_a_broker_claims_to_have_all_records_only_if_its_logs_are_there(
    start: Start, tmp_path: Path
) -> None:
    """Others in sync lead instead then, in a cluster (PreviousBrokerEpoch, KIP-966)."""
    logs = tmp_path / "logs"
    await stopped_with_records(start)
    broker = await start()
    assert broker.cluster.lifecycle.life.former_epoch != UNKNOWN
    await broker.close()
    (logs / "t-1" / "log-start-offset").write_bytes(b"x")
    broker = await start()
    assert broker.cluster.lifecycle.life.former_epoch == UNKNOWN
    await broker.close()
    shutil.rmtree(logs / "t-1")
    broker = await start()
    assert broker.cluster.lifecycle.life.former_epoch == UNKNOWN


async def test_who_gives_up_a_log_that_is_gone_begins_at_0(start: Start, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    await stopped_with_records(start)
    shutil.rmtree(logs / "t-1")
    known = logs / "known-partitions"
    kept = [line for line in known.read_text().splitlines() if not line.startswith("t-1 ")]
    known.write_text("".join(f"{line}\n" for line in kept))
    broker = await start()
    assert [end_of(broker, "t", index) for index in range(3)] == [5, 0, 5]
    assert verify(logs) == 0
    await broker.close()


async def test_a_topic_with_a_log_that_is_gone_can_be_deleted(start: Start, tmp_path: Path) -> None:
    await stopped_with_records(start)
    shutil.rmtree(tmp_path / "logs" / "t-1")
    broker = await start()
    topic = broker.topics.get("t")
    assert topic is not None
    delete_topic(broker, topic)
    create_topic(broker, "t", 3, {})
    await all_open(broker, "t")
    assert [end_of(broker, "t", index) for index in range(3)] == [0, 0, 0]
    assert not broker.problems()


async def test_a_broker_from_before_the_list_of_known_partitions_starts(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped_with_records(start)
    known = tmp_path / "logs" / "known-partitions"
    right = known.read_text()
    assert [line.split()[0] for line in right.splitlines()] == ["t-0", "t-1", "t-2"]
    for damage in (None, "t-0 x\n"):
        known.unlink()
        if damage is not None:
            known.write_text(damage)
        caplog.clear()
        broker = await start()
        assert len(told(caplog)) == (damage is not None)
        assert end_of(broker, "t", 2) == 5
        await broker.close()
        assert known.read_text() == right


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"version: 0\ntopic_id: 1234\n"])
async def test_a_damaged_topic_id_is_put_right(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    await stopped_with_records(start)
    mark = tmp_path / "logs" / "t-1" / "partition.metadata"
    right = mark.read_bytes()
    mark.write_bytes(content)
    caplog.clear()
    broker = await start()
    (said,) = told(caplog)
    assert said.startswith(f"{mark} is damaged: ")
    assert mark.read_bytes() == right
    assert end_of(broker, "t", 1) == 5


async def test_a_log_of_which_nothing_tells_the_topic_stays_as_it_is(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped_with_records(start)
    logs = tmp_path / "logs"
    mark = logs / "t-1" / "partition.metadata"
    mark.write_bytes(b"")
    (logs / "known-partitions").unlink()
    caplog.clear()
    broker = await start()
    (said,) = told(caplog)
    assert said.startswith(f"t-1 stays offline: {mark} is damaged")
    await broker.close()
    assert (logs / "t-1" / f"{0:020d}.log").exists()
    # As the line advises.
    mark.unlink()
    assert end_of(await start(), "t", 1) == 5


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"3 00000000\n"])
async def test_deleted_records_do_not_come_back_when_the_start_of_a_log_is_not_known(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    broker = await start()
    create_topic(broker, "t", 1, {})
    fill(broker, "t", 0)
    partition = broker.topics.partition("t", 0)
    assert partition is not None
    partition.log.flush()
    partition.advance()
    partition.log.delete_records(3)
    await broker.close()
    path = tmp_path / "logs" / "t-0" / "log-start-offset"
    right = path.read_bytes()
    path.write_bytes(content)
    assert verify(tmp_path / "logs") == 1
    caplog.clear()
    broker = await start()
    (said,) = told(caplog, logging.ERROR)
    assert said.startswith(f"t-0 stays offline: {path} is damaged")
    await broker.close()
    # One damaged byte is put up with, and the number alone is what the line asks for.
    for sound in (bytes([right[0] ^ 1, *right[1:]]), b"3\n"):
        path.write_bytes(sound)
        broker = await start()
        partition = broker.topics.partition("t", 0)
        assert partition is not None
        assert partition.log.log_start_offset == 3
        await broker.close()


async def test_a_missing_meta_properties_is_written_again(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await stopped_with_records(start)
    path = tmp_path / "logs" / "meta.properties"
    right = path.read_bytes()
    path.unlink()
    caplog.clear()
    assert end_of(await start(), "t", 0) == 5
    assert path.read_bytes() == right
    (said,) = told(caplog)
    assert said.startswith(f"{path} was missing")


async def commit(client: RawClient, group: str, offset: int) -> int:
    """Commit an offset of topic `t`; return the error code."""
    asked = {"group_id": group, "topics": [{"name": "t", "partitions": [
        {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    ]}]}  # fmt: skip
    (topic,) = (await client.call(OFFSET_COMMIT, 8, asked))["topics"]
    code: int = topic["partitions"][0]["error_code"]
    return code


async def committed(client: RawClient, group: str) -> int:
    """Return a committed offset of topic `t`, -1 if there is none."""
    asked = {"groups": [{"group_id": group, "topics": None}], "require_stable": False}
    async with asyncio.timeout(60):
        while True:
            (found,) = (await client.call(OFFSET_FETCH, 8, asked))["groups"]
            if found["error_code"] != errors.CoordinatorLoadInProgress.code:
                break
            await asyncio.sleep(0.01)
    assert found["error_code"] == errors.NONE
    topics = found["topics"]
    return -1 if not topics else int(topics[0]["partitions"][0]["committed_offset"])


@pytest.mark.parametrize("byte", [-1, 8, 11, 22, 60])
async def test_groups_behind_a_damaged_batch_are_there_and_a_line_tells_of_it(
    start: Start, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture, byte: int
) -> None:
    broker = await start(offsets_topic_num_partitions="1")
    create_topic(broker, "t", 1, {})
    await start_coordinators(broker)
    client = await connect(broker)
    for number, group in enumerate(("first", "second", "third"), 1):
        assert await commit(client, group, number) == errors.NONE
    await client.close()
    await broker.close()
    path = tmp_path / "logs" / "__consumer_offsets-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    second = next(
        each for each in scan_batches(data)[0] if b"second" in data[each.position :][: each.size]
    )
    data[second.position + byte % second.size] ^= 1
    path.write_bytes(data)
    caplog.clear()
    broker = await start(offsets_topic_num_partitions="1")
    client = await connect(broker)
    assert [await committed(client, each) for each in ("first", "second", "third")][::2] == [1, 3]
    assert await committed(client, "second") == -1
    (said,) = told(caplog)
    assert said.startswith(
        f"__consumer_offsets-0: the offsets {second.base_offset} to {second.base_offset} cannot be "
        f"read ({path}, byte {second.position}: "
    )
    assert await commit(client, "second", 7) == errors.NONE


async def test_transactions_are_not_coordinated_by_what_a_damaged_log_still_has(
    start: Start, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {"transaction_state_log_num_partitions": "1"}
    broker = await start(**properties)
    await start_coordinators(broker)
    client = await connect(broker)
    asked = {"transactional_id": "x", "transaction_timeout_ms": 60_000,
             "producer_id": -1, "producer_epoch": -1}  # fmt: skip
    for _ in range(2):
        answer = await client.call(INIT_PRODUCER_ID, 4, asked)
        assert answer["error_code"] == errors.NONE
    await client.close()
    await broker.close()
    path = tmp_path / "logs" / "__transaction_state-0" / f"{0:020d}.log"
    right = path.read_bytes()
    last = scan_batches(right)[0][-1]
    path.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    caplog.clear()
    broker = await start(**properties)
    client = await connect(broker)
    for _ in range(2):
        answer = await client.call(INIT_PRODUCER_ID, 4, asked)
        assert answer["error_code"] == errors.CoordinatorLoadInProgress.code
    (said,) = told(caplog)
    assert said.startswith(f"__transaction_state-0: the offsets {last.base_offset} to ")
    assert f"put a copy of {path.parent} back" in said
    await client.close()
    await broker.close()
    path.write_bytes(right)
    client = await connect(await start(**properties))
    async with asyncio.timeout(60):
        while True:
            answer = await client.call(INIT_PRODUCER_ID, 4, asked)
            if answer["error_code"] != errors.CoordinatorLoadInProgress.code:
                break
            await asyncio.sleep(0.01)
    assert answer["producer_epoch"] == 2
