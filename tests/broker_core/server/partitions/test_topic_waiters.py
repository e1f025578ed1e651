"""Those who wait for something that holds for topics."""

from __future__ import annotations

import asyncio

from broker_core.server.partitions.topic_waiters import TopicWaiters

#: Seconds; a test that waits for so long fails.
_FOR_EVER = 1_000.0


async def test_who_waits_goes_on_when_each_topic_has_been_found_once() -> None:
    waiters = TopicWaiters()
    gone_on: list[str] = []
    asked: list[tuple[str, int]] = []
    waiters.wait({"a": 1, "b": 2}, _FOR_EVER, lambda: gone_on.append("both"))
    waiters.wait({"b": 3}, _FOR_EVER, lambda: gone_on.append("large"))
    for there in ({"a": 1}, {}, {"b": 2}, {"b": 3}):
        assert waiters

        def holds(name: str, count: int, there: dict[str, int] = there) -> bool:
            asked.append((name, count))
            return there.get(name, 0) >= count

        waiters.check(holds)
        if there == {"b": 2}:
            assert gone_on == ["both"]
    assert gone_on == ["both", "large"]
    assert not waiters
    assert asked.count(("a", 1)) == 1


async def test_who_waits_goes_on_after_a_while_or_when_all_have_to() -> None:
    waiters = TopicWaiters()
    gone_on: list[str] = []
    in_time = asyncio.Event()
    waiters.wait({"a": 1}, _FOR_EVER, lambda: gone_on.append("patient"))
    waiters.wait({"a": 1}, -1.0, in_time.set)
    async with asyncio.timeout(60):
        await in_time.wait()
    assert not gone_on
    waiters.close()
    assert gone_on == ["patient"]
    assert not waiters
