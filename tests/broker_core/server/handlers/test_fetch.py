"""The time at which a fetch is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker_core.server.runtime import Broker
from tests.broker_core.server.partitions.test_fetch_sessions import Reader, append
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic

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
