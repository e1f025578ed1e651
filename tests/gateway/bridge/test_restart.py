"""A restarted bridge stores each fix once, however much the log holds."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    OffsetSpec,
)

from tests.consumers.running import Broker, Process
from tests.gateway.bridge.test_bridge import own_listener, phone
from tests.gateway.records import NOW, fix
from waylog.kafka.clients import client_config, ensure_topics, producer_config
from waylog.messages import decode_fix, encode

#: Records of each partition: a few more than a bridge reads before it starts.
BEHIND = 50_010
HOUR_S = 3600


class Log:
    """A broker that runs on another machine, as far as the bridge can tell."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(folder)
        ensure_topics(self.broker.address)
        self._admin = AdminClient(client_config(self.broker.address, "test"))
        self._consumer = Consumer(client_config(self.broker.address, "test") | {"group.id": "test"})
        #: Device, time (s) and partition of each fix, except those of other devices.
        self._found: list[tuple[str, int, int]] = []
        self._read_on()

    def close(self) -> None:
        self._consumer.close()
        self.broker.process.stop()

    def bury(self, *devices: str) -> None:
        """Append so many records that the devices' fixes are no longer among the newest."""
        producer = Producer(
            producer_config(self.broker.address, "test", linger_ms=20)
            | {"queue.buffering.max.messages": 1_000_000}
        )
        value = encode(fix("others/phone", NOW))
        for partition in {partition for name, _, partition in self._found if name in devices}:
            for _ in range(BEHIND):
                producer.produce("location", value, b"others/phone", partition)
        assert producer.flush(60) == 0
        self._read_on()

    def start_again(self) -> None:
        """Replace topic `location` by a new one of the same name."""
        self._admin.delete_topics(["location"])["location"].result(60)
        ensure_topics(self.broker.address)
        self._found.clear()
        self._read_on()

    def times(self, device: str) -> list[int]:
        """Return the times (s) of all fixes of a device in the log, sorted."""
        for record in self._consumer.consume(100, 0.05):
            assert record.error() is None
            found = decode_fix(record.value() or b"")
            self._found.append((found.device, found.time // 1000, record.partition() or 0))
        return sorted(time for name, time, _ in self._found if name == device)

    def _read_on(self) -> None:
        """Read the topic from its present end."""
        count = len(self._admin.list_topics("location", timeout=60).topics["location"].partitions)
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = self._admin.list_offsets(
            {TopicPartition("location", each): newest for each in range(count)}
        )
        self._consumer.assign(
            [
                TopicPartition("location", place.partition, end.result(60).offset)
                for place, end in ends.items()
            ]
        )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "broker").mkdir()
    running = Log(tmp_path / "broker")
    yield running
    running.close()


class Cluster:
    """An MQTT cluster, and a bridge between it and the log."""

    def __init__(self, log: Log, port: int, folder: Path) -> None:
        self._log = log
        self._port = port
        self._folder = folder

    @asynccontextmanager
    async def bridge(self, stop: signal.Signals = signal.SIGTERM) -> AsyncIterator[Process]:
        """Run `waylog bridge`, and stop it with the signal."""
        process = Process(
            *("bridge", "--mqtt", f"127.0.0.1:{self._port}", "--user", "bridge"),
            *("--bootstrap-servers", self._log.broker.address, "--data", str(self._folder)),
            *("--client-id", "bridge", "--addresses", "none"),
        )
        try:
            await asyncio.to_thread(process.wait_for, "bridge ready", 60)
            yield process
        finally:
            status = await asyncio.to_thread(process.stop, stop)
        assert status == (0 if stop is signal.SIGTERM else -stop), process.output

    async def send(self, device: str, *seconds: int) -> None:
        async with phone(self._port, device) as client:
            for second in seconds:
                position = f'{{"lat":50,"lon":7,"time":{second}}}'.encode()
                await client.publish(f"devices/ada/{device}/position", position)

    async def stored(self, device: str, expected: Sequence[int]) -> None:
        # A late fix waits until all of the log is read.
        deadline = time.monotonic() + 120
        while True:
            found = await asyncio.to_thread(self._log.times, f"ada/{device}")
            if len(found) >= len(expected) or time.monotonic() > deadline:
                break
        assert found == sorted(expected)


START = NOW // 1000


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_repeated_fix_is_stored_once_whatever_the_log_holds(
    log: Log, tmp_path: Path, end: signal.Signals
) -> None:
    times = range(START, START + 5)
    async with own_listener(tmp_path) as port:
        cluster = Cluster(log, port, tmp_path / "data")
        async with cluster.bridge(end):
            for device in ("phone", "bike"):
                await cluster.send(device, *times)
                await cluster.stored(device, times)
        # Fixes that came while the bridge was away are known as well: the log has them.
        await asyncio.to_thread(log.bury, "ada/phone", "ada/bike")
        for _ in range(2):
            async with cluster.bridge(end):
                for device in ("phone", "bike"):
                    # The last one is a fix that the phone has kept for an hour.
                    await cluster.send(device, *times, START - HOUR_S)
                    await cluster.stored(device, [START - HOUR_S, *times])
    kept = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert any(path.suffix == ".keys" for path in kept) or end is signal.SIGKILL
    # The files do not tell who was where.
    assert not any(b"ada/phone" in path.read_bytes() for path in kept)
    assert not any(path.stat().st_mode & 0o077 for path in kept)


async def test_what_the_log_does_not_have_any_more_is_stored_again(
    log: Log, tmp_path: Path
) -> None:
    times = range(START, START + 5)
    async with own_listener(tmp_path) as port:
        cluster = Cluster(log, port, tmp_path / "data")
        async with cluster.bridge():
            await cluster.send("phone", *times)
            await cluster.stored("phone", times)
        await asyncio.to_thread(log.start_again)
        async with cluster.bridge() as process:
            await cluster.send("phone", *times)
            await cluster.stored("phone", times)
        assert "it is of another log: topic location" in process.output


async def test_what_others_store_while_the_bridge_runs_is_not_stored_again(
    log: Log, tmp_path: Path
) -> None:
    async with own_listener(tmp_path) as port:
        one, other = (Cluster(log, port, tmp_path / name) for name in ("one", "other"))
        async with one.bridge():
            async with own_listener(tmp_path) as elsewhere:
                other = Cluster(log, elsewhere, tmp_path / "other")
                async with other.bridge():
                    await other.send("phone", START)
                    await other.stored("phone", [START])
            await one.send("phone", START, START + 1)
            await one.stored("phone", [START, START + 1])
