"""The producer against a broker of this package, on the test's event loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker_core.configuration.config import BrokerConfig
from broker_core.server.runtime import start_broker
from tests.small_disk import small_disk
from waylog.kafka.clients import AppendError, Producer


@pytest.fixture
async def producer(tmp_path: Path) -> AsyncIterator[Producer]:
    broker = await start_broker(
        BrokerConfig.from_properties(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "logs"),
                "log.flush.interval.messages": "1",
            }
        )
    )
    loop = asyncio.get_running_loop()
    servers = str(broker.endpoint)
    admin = AdminClient({"bootstrap.servers": servers})
    creating = admin.create_topics([NewTopic("four", num_partitions=4)])["four"]
    await loop.run_in_executor(None, creating.result, 30)
    made = Producer(servers, "test", loop)
    try:
        yield made
    finally:
        await made.close()
        await broker.close()


async def test_records_of_a_key_are_acknowledged_in_the_order_they_were_given(
    producer: Producer,
) -> None:
    futures = [producer.append("four", b"%d" % number, b"key") for number in range(25_000)]
    positions = await asyncio.wait_for(asyncio.gather(*futures), 30)
    assert [position.offset for position in positions] == list(range(25_000))
    assert len({position.partition for position in positions}) == 1
    assert len(producer) == 0


async def test_a_log_that_refuses_to_store_is_told_of_soon_and_no_more_when_there_is_room(
    tmp_path: Path,
) -> None:
    """librdkafka itself reports nothing while it repeats requests."""
    with small_disk(tmp_path / "disk", 16 * 1024 * 1024) as disk:
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(disk.folder / "logs"),
            "log.flush.interval.messages": "1",
        }
        broker = await start_broker(BrokerConfig.from_properties(properties))
        broker.create_topic("t", 1, {})
        producer = Producer(str(broker.endpoint), "test", asyncio.get_running_loop())
        try:
            async with asyncio.timeout(30):
                await producer.append("t", b"first")
            assert producer.trouble is None
            disk.fill()
            waiting = producer.append("t", os.urandom(65_536))
            started = time.monotonic()
            async with asyncio.timeout(30):
                while producer.trouble is None:
                    assert not waiting.done()
                    await asyncio.sleep(0.01)
            assert "its disk may be full" in producer.trouble
            assert time.monotonic() - started > 1
            disk.free()
            async with asyncio.timeout(30):
                await waiting
            async with asyncio.timeout(30):
                while producer.trouble is not None:
                    await asyncio.sleep(0.01)
        finally:
            await producer.close(0)
            await broker.close()


async def test_a_record_that_is_refused_fails_alone(producer: Producer) -> None:
    before = producer.append("four", b"small")
    too_large = producer.append("four", bytes(2_000_000))
    after = producer.append("four", b"small")
    with pytest.raises(AppendError, match="too large"):
        await asyncio.wait_for(too_large, 30)
    await asyncio.wait_for(asyncio.gather(before, after), 30)


async def test_a_record_that_is_none_does_not_stop_those_behind_it(producer: Producer) -> None:
    for topic, value in (("four", "text"), ("\0", b"value")):
        wrong = producer.append(topic, value)  # type: ignore[arg-type]
        after = producer.append("four", b"good")
        with pytest.raises(AppendError):
            await asyncio.wait_for(wrong, 60)
        await asyncio.wait_for(after, 30)


async def test_closing_sends_what_was_gathered(producer: Producer) -> None:
    future = producer.append("four", b"last")
    assert len(producer) == 1
    assert await producer.close() == 0
    assert future.done()
    assert future.exception() is None
