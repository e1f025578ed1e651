"""Forwardings that are behind, read for on a real broker."""

from __future__ import annotations

import asyncio

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from consumers.forwarding.ledger import Ledger
from consumers.forwarding.reading_again import ReadingAgain
from consumers.forwarding.schedule import Schedule
from tests.consumers.forwarding.test_ledger import forwarding
from tests.consumers.forwarding.test_schedule import down, route
from tests.consumers.running import Broker
from waylog.forwarding.definition import Progress
from waylog.history.erasures import Erasures
from waylog.kafka.clients import client_config, producer_config
from waylog.kafka.partition_fetcher import PartitionFetcher
from waylog.kafka.topics import LOCATION

KEY = ("anna", "1")
DELETED, END = 5, 8


def store_fixes(servers: str) -> None:
    """Store eight fixes in the first partition, of which retention deletes five."""
    producer = Producer(producer_config(servers, "test"))
    for _ in range(END):
        producer.produce(LOCATION, b'{"device":"anna/phone"}', b"anna/phone", 0)
    assert producer.flush(60) == 0
    admin = AdminClient(client_config(servers, "test"))
    [deleted] = admin.delete_records([TopicPartition(LOCATION, 0, DELETED)]).values()
    assert deleted.result(60).low_watermark == DELETED


async def read_again(servers: str, ledger: Ledger, schedule: Schedule) -> None:
    """Read the first partition until something of it waits."""
    work = asyncio.Event()

    async def first_offset(_partition: int) -> int:
        return DELETED

    fetcher = PartitionFetcher(servers, "test", answer_timeout_s=60.0)
    reading = ReadingAgain(ledger, schedule, fetcher, Erasures(), list, first_offset, work)
    task = asyncio.create_task(reading.run(0))
    try:
        async with asyncio.timeout(60):
            await work.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await fetcher.close()


async def test_what_retention_has_deleted_meanwhile_is_told_as_missed(broker: Broker) -> None:
    await asyncio.to_thread(store_fixes, broker.address)
    ledger = Ledger()
    ledger.put(KEY, forwarding())
    ledger.assign(0, END, 0, END, {KEY: Progress(offset=0)})
    await read_again(broker.address, ledger, Schedule())
    (behind,) = ledger.routes()
    assert [each.offset for each in behind.batch(100)] == [5, 6, 7]
    (told,) = ledger.to_store(0.0, leaving=(0,))
    assert told.progress.missed == DELETED


async def test_for_a_server_that_is_down_only_one_forwarding_is_read_for(broker: Broker) -> None:
    await asyncio.to_thread(store_fixes, broker.address)
    ledger, keys = Ledger(), [KEY, ("anna", "2")]
    for key in keys:
        ledger.put(key, forwarding(url="https://down"))
    ledger.assign(0, END, 0, END, {key: Progress(offset=DELETED) for key in keys})
    await read_again(broker.address, ledger, down(route(0, "https://down")))
    assert sorted(each.waiting_count for each in ledger.routes()) == [0, 3]
