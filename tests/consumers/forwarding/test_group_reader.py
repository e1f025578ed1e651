"""Where the group goes on, on a real broker."""

from __future__ import annotations

import asyncio

from confluent_kafka import Consumer, Producer, TopicPartition

from consumers.forwarding.group_reader import Assigned, GroupReader
from tests.consumers.running import Broker
from waylog.kafka.clients import consumer_config, producer_config
from waylog.kafka.topics import LOCATION

END = 3


def store_fixes(servers: str) -> None:
    """Store fixes in the first partition, and that the group has read all of them."""
    producer = Producer(producer_config(servers, "test"))
    for _ in range(END):
        producer.produce(LOCATION, b'{"device":"anna/phone"}', b"anna/phone", 0)
    assert producer.flush(60) == 0
    consumer = Consumer(consumer_config(servers, "test", "group"))
    consumer.commit(offsets=[TopicPartition(LOCATION, 0, END)], asynchronous=False)
    consumer.close()


async def test_a_group_that_has_read_all_begins_at_the_end(broker: Broker) -> None:
    await asyncio.to_thread(store_fixes, broker.address)
    reader = GroupReader(
        *(broker.address, "test", "group"),
        session_timeout_s=10.0,
        to_write=lambda _: None,
        on_gone=lambda _: None,
    )
    assigned: list[Assigned] = []
    try:
        async with asyncio.timeout(60):
            while not assigned:
                _, assigned = await reader.read(list)
    finally:
        await reader.close()
    assert Assigned(0, position=END, first=0, end=END, committed=END) in assigned
