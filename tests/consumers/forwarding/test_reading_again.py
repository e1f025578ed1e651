"""Forwardings that are behind, read for on a real broker."""

from __future__ import annotations

import asyncio

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from consumers.forwarding.ledger import Ledger
from consumers.forwarding.reading_again import ReadingAgain
from consumers.forwarding.schedule import Schedule
from tests.consumers.forwarding.test_ledger import forwarding
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


async def test_what_retention_has_deleted_meanwhile_is_told_as_missed(broker: Broker) -> None:
    await asyncio.to_thread(store_fixes, broker.address)
    ledger, work = Ledger(), asyncio.Event()
    ledger.put(KEY, forwarding())
    ledger.assign(0, END, 0, END, {KEY: Progress(offset=0)})
    (route,) = ledger.routes()

    async def first_offset(_partition: int) -> int:
        return DELETED

    fetcher = PartitionFetcher(broker.address, "test", answer_timeout_s=10.0)
    reading = ReadingAgain(ledger, Schedule(), fetcher, Erasures(), list, first_offset, work)
    task = asyncio.create_task(reading.run(0))
    try:
        async with asyncio.timeout(20):
            await work.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await fetcher.close()
    assert [each.offset for each in route.batch(100)] == [5, 6, 7]
    (told,) = ledger.to_store(0.0, leaving=(0,))
    assert told.progress.missed == DELETED
