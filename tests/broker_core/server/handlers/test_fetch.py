"""What a fetch is answered, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol.definitions import FETCH
from broker_core.server.runtime import Broker
from tests.broker_core.server.partitions.test_fetch_sessions import Reader, append
from tests.broker_core.server.raw_client import RawClient, client_at, fetch_body
from tests.broker_core.server.topics import create_topic, delete_topic

Connect = Callable[[Broker], Awaitable[RawClient]]

WAITS: dict[str, Any] = {"max_wait_ms": 5_000, "min_bytes": 1}


async def test_records_that_come_one_by_one_are_told_together(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "t", 1, {})
    reader = Reader(await connect(broker))
    await reader.fetch((0, 0))
    loop = asyncio.get_running_loop()
    began, answers, offset = loop.time(), 0, 0
    for count in range(1, 200):
        append(broker, 0)
        if answers and offset < count - 1:
            continue
        answer = await reader.fetch((0, offset), **WAITS)
        offset = answer["responses"][0]["partitions"][0]["high_watermark"]
        answers += 1
    # At most one answer in two milliseconds, however fast records arrive.
    assert answers <= (loop.time() - began) / 0.002 + 2


@pytest.mark.parametrize(("isolation_level", "aborted"), [(0, None), (1, [])])
async def test_the_end_of_a_partition_has_nothing_and_what_is_behind_it_is_out_of_range(
    broker: Broker, connect: Connect, isolation_level: int, aborted: list[Any] | None
) -> None:
    create_topic(broker, "t", 1, {})
    append(broker, 0)
    client = await connect(broker)
    parts = []
    for offset in (1, 2):
        body = fetch_body("t", offset, isolation_level=isolation_level)
        ((answer,),) = (
            each["partitions"] for each in (await client.call(FETCH, 8, body))["responses"]
        )
        parts.append(answer)
    at_end, behind = parts
    assert (at_end["error_code"], at_end["records"]) == (errors.NONE, b"")
    assert at_end["aborted_transactions"] == aborted
    assert (at_end["high_watermark"], at_end["log_start_offset"]) == (1, 0)
    assert behind["error_code"] == errors.OffsetOutOfRange.code


@pytest.mark.parametrize("end", ["records", "deleted"])
async def test_thousands_that_wait_for_a_partition_are_answered_in_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("broker_core.server.network.request_turns._TURN_S", -1.0)
    topic = create_topic(broker, "t", 1, {})
    waiting = topic.partition(0).fetches
    greedy = await client_at("127.0.0.2", broker.endpoint)
    other = await client_at("127.0.0.1", broker.endpoint)
    body = {**fetch_body("t", 0), "max_wait_ms": 60_000, "min_bytes": 1}
    for _ in range(300):
        greedy.send(FETCH, 8, body)
    async with asyncio.timeout(60):
        while len(waiting) < 300:
            await asyncio.sleep(0)
    other.send(FETCH, 8, body)
    async with asyncio.timeout(60):
        while len(waiting) < 301:
            await asyncio.sleep(0)
    if end == "records":
        append(broker, 0)
    else:
        delete_topic(broker, topic)
    await other.receive(FETCH, 8)
    # One has a turn in an iteration of the event loop: nobody's are answered all at once.
    assert len(waiting) > 200
    for _ in range(300):
        await greedy.receive(FETCH, 8)
    assert not waiting
    for client in (greedy, other):
        await client.close()
