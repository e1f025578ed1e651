"""A follower's requests to a leader that is written here, byte by byte: it answers when it is told.

Real brokers answer in the order and at the moments that the machine's load makes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from broker_core.cluster.image import PartitionImage
from broker_core.environment import Environment
from broker_core.errors import BrokerError, NotLeaderOrFollower
from broker_core.log import Log
from broker_core.log.config import LogConfig
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.decoder import decode
from broker_core.protocol.definitions import FETCH
from broker_core.protocol.encoder import encode
from broker_core.replication.leader import IsrProposal
from broker_core.replication.throttle import ReplicationQuota
from broker_core.server.network.peer import Peer
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.replica_fetcher import FetchLimits, ReplicaFetcher
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from waylog.config import Endpoint

VERSION: Final = 17
TOPIC: Final = bytes(15) + b"t"
LEADER: Final = 1
FOLLOWER: Final = 2


class Leader:
    """A server that reads Fetch requests, and answers them in order when the test says so."""

    def __init__(self) -> None:
        #: The partitions that the last request leaves out of the session.
        self.forgotten: set[int] = set()
        self._requests: asyncio.Queue[tuple[int, dict[str, Any]]] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read requests until the client has gone."""
        self._writer = writer
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
                assert (key, version) == (FETCH.key, VERSION)
                body, _ = decode(FETCH.request_plan(VERSION), frame, 10 + length + 1)
                self._requests.put_nowait((correlation_id, body))
        except asyncio.IncompleteReadError:
            writer.close()

    async def asked(self) -> tuple[int, dict[int, int]]:
        """Return the next request: its correlation id, and the offsets by partition."""
        async with asyncio.timeout(60):
            correlation_id, body = await self._requests.get()
        self.forgotten = {
            index for topic in body["forgotten_topics_data"] for index in topic["partitions"]
        }
        return correlation_id, {
            each["partition"]: each["fetch_offset"]
            for topic in body["topics"]
            for each in topic["partitions"]
        }

    def answer(
        self,
        correlation_id: int,
        records: dict[int, bytes],
        high_watermark: int = 0,
        error_code: int = 0,
    ) -> None:
        """Answer a request, in the order in which they came."""
        partitions = [
            {
                "partition_index": index, "error_code": error_code,
                "high_watermark": high_watermark,
                "last_stable_offset": high_watermark, "log_start_offset": 0,
                "aborted_transactions": [], "preferred_read_replica": -1, "records": data,
            }
            for index, data in records.items()
        ]  # fmt: skip
        body = {
            "throttle_time_ms": 0, "error_code": 0, "session_id": 7, "node_endpoints": [],
            "responses": [{"topic_id": TOPIC, "partitions": partitions}],
        }  # fmt: skip
        frame = struct.pack(">i", correlation_id) + b"\0"
        frame += encode(FETCH.response_plan(VERSION), body)
        assert self._writer is not None
        self._writer.write(struct.pack(">i", len(frame)) + frame)


class Control:
    """What the partitions ask of their broker."""

    node_id = FOLLOWER
    lag_ms = 30_000

    def monotonic_ms(self) -> int:
        """Return a time."""
        return 0

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Followers do not ask."""
        raise NotImplementedError

    def propose(self, partition: ReplicatedPartition, proposal: IsrProposal) -> None:
        """Followers do not propose."""
        raise NotImplementedError

    def removed(self, partition: ReplicatedPartition) -> None:
        """No partition is deleted here."""
        raise NotImplementedError

    def storage_failed(self, partition: ReplicatedPartition, error: BrokerError) -> None:
        """The disk does not fail here."""
        raise error


class Bench:
    """A fetcher of a follower with its leader."""

    def __init__(self, folder: Path, leader: Leader, fetcher: ReplicaFetcher) -> None:
        self.leader = leader
        self.fetcher = fetcher
        self._folder = folder
        self._environment = Environment.real()

    def follow(self, index: int) -> ReplicatedPartition:
        """Follow a new partition."""
        directory = self._folder / f"t-{index}"
        log = Log.open(directory, "t", index, LogConfig(), self._environment)
        partition = ReplicatedPartition("t", index, log, Control(), TOPIC)
        replicas = (LEADER, FOLLOWER)
        partition.follow(PartitionImage(replicas, replicas, LEADER))
        self.fetcher.add(partition)
        return partition


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    leader = Leader()
    server = await asyncio.start_server(leader.serve, "127.0.0.1", 0)
    environment = Environment.real()

    def failed(partition: Partition, error: BrokerError) -> None:
        raise error

    flusher = Flusher(environment.threads.worker("flusher"), environment.clock, failed)
    fetcher = ReplicaFetcher(
        LEADER,
        Peer(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), "broker-2"),
        FOLLOWER,
        lambda: 1,
        flusher,
        FetchLimits(),
        environment.clock.now_ms,
        ReplicationQuota(),
    )
    yield Bench(tmp_path, leader, fetcher)
    fetcher.close()
    await flusher.close()
    server.close()
    await server.wait_closed()


def batch(value: bytes) -> bytes:
    """Return a batch at offset 0 of leader epoch 0."""
    data = build_batch([(1000, b"k", value, ())])
    data[12:16] = bytes(4)
    return bytes(data)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def test_records_that_come_twice_are_taken_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    leader, one = bench.leader, bench.follow(0)
    first, offsets = await leader.asked()
    assert offsets == {0: 0}
    leader.answer(first, {})
    first, offsets = await leader.asked()
    assert offsets == {}
    # A new partition is asked for while a request waits, so the leader has two.
    bench.follow(1)
    second, offsets = await leader.asked()
    assert offsets == {1: 0}
    leader.answer(first, {0: batch(b"a")})
    third, offsets = await leader.asked()
    assert offsets == {0: 1}
    # The second request did not name the first partition: the session still says 0.
    leader.answer(second, {0: batch(b"a")}, high_watermark=1)
    # The leader tells a watermark once.
    await until(lambda: one.high_watermark == 1)
    assert one.log.log_end_offset == 1
    data = bytearray(batch(b"b"))
    data[:8] = struct.pack(">q", 1)
    leader.answer(third, {0: bytes(data)}, high_watermark=1)
    _, offsets = await leader.asked()
    assert offsets == {0: 2}
    assert one.log.log_end_offset == 2
    assert not caplog.messages


async def test_an_answer_to_what_was_asked_before_it_was_given_up_is_ignored(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    leader, one = bench.leader, bench.follow(0)
    first, _ = await leader.asked()
    leader.answer(first, {})
    first, _ = await leader.asked()
    bench.fetcher.remove(one)
    bench.fetcher.add(one)
    second, offsets = await leader.asked()
    assert offsets == {0: 0}
    leader.answer(first, {0: batch(b"of another time")})
    leader.answer(second, {0: batch(b"a")})
    _, offsets = await leader.asked()
    assert offsets == {0: 1}
    assert b"another time" not in one.log.read(0, 1000)
    assert not caplog.messages


async def test_what_a_leader_refuses_is_asked_for_less_and_less_often(bench: Bench) -> None:
    leader = bench.leader
    partitions = [bench.follow(index) for index in range(3)]
    request, offsets = await leader.asked()
    assert offsets == {0: 0, 1: 0, 2: 0}
    # The first one has a leader; the others' is about to open them.
    leader.answer(request, {})
    request, _ = await leader.asked()
    loop = asyncio.get_running_loop()
    times = []
    for number in range(4):
        leader.answer(request, {1: b"", 2: b""}, error_code=NotLeaderOrFollower.code)
        times.append(loop.time())
        request, offsets = await leader.asked()
        assert offsets == {}
        assert leader.forgotten == {1, 2}, number
        # The leader holds this one; the next comes with the partitions, in one request.
        waiting = request
        request, offsets = await leader.asked()
        assert offsets == {1: 0, 2: 0}
        times[-1] = loop.time() - times[-1]
        leader.answer(waiting, {})
    # Each wait is twice the one before; the loop's clock has milliseconds.
    assert times[-1] >= 0.03 * 2**3 - 0.002
    leader.answer(request, {1: batch(b"a"), 2: batch(b"a")})
    await until(lambda: partitions[1].log.log_end_offset == 1)
