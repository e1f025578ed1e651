"""Connections that are closed because nothing happens on them, at times that a test sets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import API_VERSIONS, FETCH, METADATA
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, fetch_body, has_answer, request_frame
from tests.broker_core.server.topics import create_topic
from tests.certificates import Certificates

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]

_FRAME = request_frame(API_VERSIONS, 0, {})
#: A connection may be idle for a second, or a request incomplete. Connections are looked at every
#: 0.1 s of the real time.
_SECOND = {"connections_max_idle_ms": "1000", "connection_setup_timeout_ms": "1000"}
_RECORD_BYTES = 8_000_000
_LARGE_FETCH = fetch_body("t", 0, partition_max_bytes=2 * _RECORD_BYTES)


class LoopTime:
    """The time of an event loop: the real one until `stop`, then as a test says."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self._stopped: float | None = None

    def __call__(self) -> float:
        return self._real() if self._stopped is None else self._stopped

    def stop(self) -> None:
        """Let time pass only by `add`; timers keep to the real time."""
        self._stopped = self._real()

    def add(self, seconds: float) -> None:
        """Let time pass after `stop`."""
        self._stopped = self() + seconds


@pytest.fixture(autouse=True)
async def clock(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    loop = asyncio.get_running_loop()
    time = LoopTime(loop.time)
    monkeypatch.setattr(loop, "time", time)
    return time


def small_client(broker: Broker) -> socket.socket:
    """Connect with a small receive buffer, so that what is not read stays with the broker."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    client.connect((broker.endpoint.host, broker.endpoint.port))
    client.setblocking(False)
    return client


async def store_a_large_record(broker: Broker) -> None:
    topic = create_topic(broker, "t", 1, {"max.message.bytes": "10000000"})
    partition = topic.partitions[0]
    partition.append(build_batch([(1, None, bytes(_RECORD_BYTES), ())]), broker.clock.now_ms())
    broker.flusher.request(partition)
    await until(lambda: partition.high_watermark == 1)


async def until_looked_at(silent: RawClient) -> None:
    """Wait until all connections have been looked at.

    The last of them has been silent for so long that it is closed.
    """
    assert await silent.is_closed_by_peer()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_request_that_does_not_arrive_is_given_up(
    start: Start, connect: Connect, clock: LoopTime
) -> None:
    broker = await start(connection_setup_timeout_ms="1000")
    clock.stop()
    polite, silent, slow = [await connect(broker) for _ in range(3)]
    await until(lambda: broker.connections == 3)
    await polite.call(API_VERSIONS, 0, {})
    await slow.call(API_VERSIONS, 0, {})
    # Single bytes keep the connection from being idle.
    slow.writer.write((1000).to_bytes(4, "big"))
    await until(lambda: broker.network.limits.incomplete.bytes > 0)
    for _ in range(3):
        clock.add(0.4)
        slow.writer.write(b"x")
        await polite.call(API_VERSIONS, 0, {})
    assert await silent.is_closed_by_peer()
    assert await slow.is_closed_by_peer()
    assert (await polite.call(API_VERSIONS, 0, {}))["error_code"] == 0


async def test_an_idle_connection_is_closed_but_not_one_that_waits(
    start: Start, connect: Connect, clock: LoopTime
) -> None:
    broker = await start(**_SECOND)
    (partition,) = create_topic(broker, "t", 1, {}).partitions
    clock.stop()
    waiting, idle = await connect(broker), await connect(broker)
    waiting.send(FETCH, 11, fetch_body("t", 0, max_wait_ms=60_000))
    await until(lambda: broker.connections == 2 and bool(partition.fetches))
    clock.add(1.1)
    assert await idle.is_closed_by_peer()
    partition.append(build_batch([(1, None, b"v", ())]), broker.clock.now_ms())
    broker.flusher.request(partition)
    _, answer = await waiting.receive(FETCH, 11)
    assert answer["error_code"] == 0


async def test_garbage_over_and_over_fills_no_log(
    start: Start, clock: LoopTime, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    clock.stop()

    async def send_garbage() -> None:
        client = await RawClient.connect(broker.endpoint)
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.reader.read() == b""
        await client.close()

    await asyncio.gather(*(send_garbage() for _ in range(300)))

    def lines() -> list[str]:
        return [line for line in caplog.messages if "is disconnected: " in line]

    said = len(lines())
    assert 0 < said < 50
    # The number of suppressed lines is logged once.
    for _ in range(2):
        clock.add(1.0)
        await send_garbage()
    told = ["more were not logged" in line for line in lines()[said:]]
    assert told == [True, False]


async def test_each_of_several_requests_has_its_own_time_to_arrive(
    start: Start, connect: Connect, clock: LoopTime
) -> None:
    broker = await start(**_SECOND)
    clock.stop()
    client, late, silent = [await connect(broker) for _ in range(3)]
    await until(lambda: broker.connections == 3)
    limits = broker.network.limits
    for each in (client, late):
        await each.call(API_VERSIONS, 0, {})
        before = limits.incomplete.bytes
        # Without a whole length the broker receives the next request together with this one.
        each.writer.write(_FRAME[:2])
        await until(lambda before=before: limits.incomplete.bytes > before)  # type: ignore[misc]
    clock.add(0.8)
    client.writer.write(_FRAME[2:] + _FRAME[:2])
    await client.receive(API_VERSIONS, 0)
    clock.add(0.8)
    await until_looked_at(silent)
    client.writer.write(_FRAME[2:])
    assert (await client.receive(API_VERSIONS, 0))[1]["error_code"] == 0
    assert await late.is_closed_by_peer()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_who_reads_slowly_keeps_the_connection(
    start: Start, connect: Connect, clock: LoopTime, tmp_path: Path, protocol: str
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    broker = await start(
        **_SECOND,
        listeners=f"{protocol}://127.0.0.1:0",
        ssl_keystore_location=str(certificates.broker),
        ssl_keystore_type="PEM",
    )
    await store_a_large_record(broker)
    clock.stop()
    is_encrypted = protocol == "SSL"
    context = ssl.create_default_context(cafile=str(certificates.authority))
    reader, writer = await asyncio.open_connection(
        sock=small_client(broker),
        ssl=context if is_encrypted else None,
        server_hostname="127.0.0.1" if is_encrypted else None,
    )
    client = RawClient(reader, writer)
    silent = await connect(broker)
    await until(lambda: broker.connections == 2)
    client.send(FETCH, 11, _LARGE_FETCH)
    for _ in range(2):
        await reader.readexactly(_RECORD_BYTES // 4)
        clock.add(0.8)
    await until_looked_at(silent)
    await reader.readexactly(_RECORD_BYTES // 2)
    await client.close()


async def test_who_does_not_read_an_answer_is_disconnected(start: Start, clock: LoopTime) -> None:
    broker = await start(**_SECOND)
    clock.stop()
    names = [{"name": f"{number:0200}"} for number in range(5_000)]
    request = request_frame(METADATA, 1, {"topics": names})
    with small_client(broker) as client:
        await asyncio.get_running_loop().sock_sendall(client, request)
        await until(lambda: has_answer(client))
        assert broker.connections == 1
        # Most of the answer, a megabyte, has no room in the kernel.
        clock.add(1.1)
        await until(lambda: broker.connections == 0)


async def test_an_idle_connection_ends_after_what_it_was_sent(
    start: Start, clock: LoopTime
) -> None:
    broker = await start(**_SECOND)
    clock.stop()
    with small_client(broker) as client:
        client.send(_FRAME)
        await until(lambda: broker.connections == 1)
        await until(lambda: has_answer(client))
        clock.add(1.1)
        await until(lambda: broker.connections == 0)
        client.setblocking(True)
        assert len(client.recv(1 << 16)) > 100
        assert client.recv(1) == b""
