"""Ranges of the log for viewers that catch up: reading them, and sharing the readers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest
from confluent_kafka import Producer

from gateway.viewers import log_range
from gateway.viewers.cursors import Cursor
from gateway.viewers.log_range import LogRanges, RangeCutOff
from tests.consumers.running import Broker
from tests.gateway.records import NOW, fix
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.fetched_records import FetchedRecord
from waylog.messages import encode

COUNT = 3_000
DEVICES = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(running.address)
    yield running
    running.process.stop()


@pytest.fixture(scope="module")
def end(broker: Broker) -> Cursor:
    """Fill the log, and return the end offset of each partition."""
    end: Cursor = {}

    def delivered(error: object, message: object) -> None:
        assert error is None
        place = (message.topic(), message.partition())  # type: ignore[attr-defined]
        end[place] = max(end.get(place, 0), message.offset() + 1)  # type: ignore[attr-defined]

    producer = Producer(producer_config(broker.address, "test"))
    for number in range(COUNT):
        name = f"u{number % DEVICES}/phone"
        value = encode(fix(name, NOW + number))
        producer.produce("location", value, name.encode(), on_delivery=delivered)
    assert producer.flush(60) == 0
    return end


@pytest.fixture
async def ranges(broker: Broker) -> AsyncIterator[LogRanges]:
    ranges = LogRanges(broker.address, "test")
    yield ranges
    await ranges.close()


async def offsets(
    ranges: LogRanges, start: Cursor, end: Cursor, party: str = "ada"
) -> dict[tuple[str, int], list[int]]:
    """Return the offsets of a range's events by partition."""
    found: dict[tuple[str, int], list[int]] = {}
    async with asyncio.timeout(60), aclosing(ranges.read(start, end, party)) as batches:
        async for events in batches:
            for event in events:
                found.setdefault((event.topic, event.partition), []).append(event.offset)
    return found


async def test_a_range_is_read_from_its_start_to_its_end_once_and_in_order(
    ranges: LogRanges, end: Cursor
) -> None:
    start = {place: offset // 3 for place, offset in end.items()}
    until = {place: offset - 5 for place, offset in end.items()}
    found = await offsets(ranges, start, until)
    assert found == {place: list(range(start[place], until[place])) for place in end}
    # A partition that is not in `start` is read from its beginning.
    assert await offsets(ranges, {}, end) == {place: list(range(end[place])) for place in end}
    assert await offsets(ranges, end, end) == {}


async def test_viewers_that_come_after_each_other_read_their_own_range(
    ranges: LogRanges, end: Cursor
) -> None:
    expected = {place: list(range(offset)) for place, offset in end.items()}
    reading = [offsets(ranges, {}, end, f"user {number % 3}") for number in range(9)]
    assert await asyncio.gather(*reading) == [expected] * 9


async def test_viewers_get_each_event_once_though_the_log_stands_still_for_a_moment(
    broker: Broker, ranges: LogRanges, end: Cursor
) -> None:
    expected = {place: list(range(offset)) for place, offset in end.items()}
    reading = [
        asyncio.create_task(offsets(ranges, {}, end, f"user {number % 3}")) for number in range(9)
    ]
    await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        reading += [
            asyncio.create_task(offsets(ranges, {}, end, f"user {number % 3}"))
            for number in range(9)
        ]
        done, _ = await asyncio.wait(reading[9:], timeout=1)
        assert not done
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
    assert await asyncio.gather(*reading) == [expected] * 18


async def test_a_range_that_the_log_does_not_give_is_cut_off(
    broker: Broker, ranges: LogRanges, end: Cursor
) -> None:
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(RangeCutOff, match="the log cannot be read"):
            await offsets(ranges, {}, end)
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)
    # The next one is read to its end.
    found = await offsets(ranges, {}, end)
    assert sum(map(len, found.values())) == COUNT


async def test_what_lies_outside_of_the_log_is_left_out(ranges: LogRanges, end: Cursor) -> None:
    beyond = {place: offset + 10 for place, offset in end.items()}
    start = {place: offset + 5 for place, offset in end.items()}
    assert await offsets(ranges, start, beyond) == {}


async def test_what_other_programs_wrote_is_passed_over(broker: Broker, ranges: LogRanges) -> None:
    places: list[tuple[str, int, int]] = []

    def delivered(error: object, message: object) -> None:
        assert error is None
        places.append((message.topic(), message.partition(), message.offset()))  # type: ignore[attr-defined]

    good = encode(fix("ada/phone", NOW))
    producer = Producer(producer_config(broker.address, "test"))
    for value, key in (
        (good, b"ada/phone"),
        (b"rubbish", b"ada/phone"),
        (b'{"lat":1}', b"ada/phone"),
        (None, b"ada/phone"),
        (good, None),
        (good, b"\xff"),
        (good, b"ada/phone"),
    ):
        producer.produce("event", value, key, 0, on_delivery=delivered)
    assert producer.flush(60) == 0
    numbers = [offset for _, _, offset in places]
    start, end = {("event", 0): numbers[0]}, {("event", 0): numbers[-1] + 1}
    assert await offsets(ranges, start, end) == {("event", 0): [numbers[0], numbers[-1]]}


async def test_whoever_gives_up_within_a_step_takes_nothing_from_others(
    ranges: LogRanges, end: Cursor
) -> None:
    for _ in range(12):
        tasks = [asyncio.create_task(offsets(ranges, {}, end)) for _ in range(3)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    found = await offsets(ranges, {}, end)
    assert sum(map(len, found.values())) == COUNT


async def test_a_viewer_that_takes_nothing_more_holds_no_reader(
    ranges: LogRanges, end: Cursor
) -> None:
    stalled = [ranges.read({}, end, "ada") for _ in range(6)]
    first = [await anext(each) for each in stalled]
    async with asyncio.timeout(60):
        found = await offsets(ranges, {}, end)
        assert sum(map(len, found.values())) == COUNT
        # They continue where they were, though others have used their readers.
        for events, reading in zip(first, stalled, strict=True):
            rest = [event async for batch in reading for event in batch]
            assert len(events) + len(rest) == COUNT


async def test_of_more_records_than_a_viewer_gets_the_oldest_are_left_out(
    ranges: LogRanges, end: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 50
    monkeypatch.setattr(log_range, "RECORDS_MAX", each * len(end))
    assert min(end.values()) > each
    assert await offsets(ranges, {}, end) == {
        place: list(range(offset - each, offset)) for place, offset in end.items()
    }


async def test_a_user_with_many_viewers_leaves_steps_to_others(
    broker: Broker, end: Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The keys of sealed records come from the log, so that opening may take long.
    of_ada, of_bob = end.keys() - {min(end)}, {min(end)}
    let_go, came = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    waiting = 0

    def opened(records: list[FetchedRecord]) -> list[FetchedRecord]:
        nonlocal waiting
        if (records[0].topic(), records[0].partition()) in of_bob:
            return records
        waiting += 1
        if waiting == 2:
            loop.call_soon_threadsafe(came.set)
        let_go.wait()
        return records

    monkeypatch.setattr(log_range, "opener_if_configured", lambda _: opened)
    ranges = LogRanges(broker.address, "test")
    ada = [
        asyncio.create_task(offsets(ranges, {}, {place: end[place] for place in of_ada}))
        for _ in range(6)
    ]
    try:
        async with asyncio.timeout(60):
            await came.wait()
            found = await offsets(ranges, {}, {place: end[place] for place in of_bob}, "bob")
        assert sum(map(len, found.values())) == sum(end[place] for place in of_bob)
        assert waiting == 2
    finally:
        let_go.set()
    await asyncio.gather(*ada)
    await ranges.close()
