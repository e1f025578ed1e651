"""BatchOpener by itself: whose batches a thread opens next, and for whom it opens none."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from broker_core import errors
from broker_core.log.config import LogConfig
from broker_core.log.validation import open_batches
from broker_core.protocol.compression import Compression
from broker_core.server.partitions.batch_opener import BatchOpener, Closed, Opened, Outcome
from tests.broker_core.server.partitions.test_opened_batches import batch


class Steps:
    """A Worker whose tasks the test runs, one by one."""

    def __init__(self) -> None:
        self.tasks: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Keep a task."""
        self.tasks.append(work)

    def close(self) -> None:
        """Run nothing more."""


async def test_parties_have_their_batches_opened_in_turn() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    order: list[str] = []
    closed = [Closed(bytearray(batch(b"1")), LogConfig.from_properties({}), "t-0")]

    def done(name: str) -> Callable[[list[Outcome]], None]:
        def note(outcomes: list[Outcome]) -> None:
            assert [type(each) for each in outcomes] == [Opened]
            order.append(name)

        return note

    for name in ("a1", "a2", "a3", "b1"):
        opener.open(name[0], closed, done(name))
    while len(order) < 4:
        (task,) = worker.tasks
        worker.tasks.clear()
        task()
        await asyncio.sleep(0)
    assert order.index("b1") < order.index("a3")
    opener.close()


async def test_a_request_of_many_batches_is_opened_in_turns() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    config = LogConfig.from_properties({"compression.type": "gzip"})
    order: list[str] = []
    # Two batches of 40 kB are one turn, whether a partition has many of them or there are many.
    large = bytearray(batch(os.urandom(40_000)))
    many = [Closed(large, config, f"t-{n}") for n in range(10)]
    one = [Closed(large * 10, config, "t-0")]
    small = [Closed(bytearray(batch(b"1")), config, "t-0")]
    told: dict[str, list[Outcome]] = {}

    def done(name: str) -> Callable[[list[Outcome]], None]:
        def note(outcomes: list[Outcome]) -> None:
            order.append(name)
            told[name] = outcomes

        return note

    for name, closed in (("many", many), ("one", one), ("small", small)):
        opener.open(name, closed, done(name))
    turns = 0
    while len(order) < 3:
        (task,) = worker.tasks
        worker.tasks.clear()
        task()
        await asyncio.sleep(0)
        turns += 1
    assert order[0] == "small"
    assert turns in range(11, 14)
    assert [type(each) for each in told["many"]] == [Opened] * 10
    (whole,) = told["one"]
    assert isinstance(whole, Opened)
    assert whole.headers is not None
    assert [each.compression for each in whole.headers] == [Compression.GZIP] * 10
    assert Opened(*open_batches(large * 10, config, "t-0")).batches == whole.batches
    opener.close()


async def test_nothing_is_opened_for_who_has_gone() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    taken: list[str] = []
    done: list[str] = []

    def steps(name: str, count: int) -> Iterator[int]:
        for _ in range(count):
            taken.append(name)
            yield 70_000

    begun = opener.take("a", steps("begun", 3), lambda: done.append("begun"))
    waiting = opener.take("a", steps("waiting", 3), lambda: done.append("waiting"))
    opener.take("a", steps("last", 1), lambda: done.append("last"))
    begun.cancel()
    waiting.cancel()
    while done != ["last"]:
        worker.tasks.pop()()
        await asyncio.sleep(0)
    assert taken == ["begun", "last"]
    opener.close()


class Kept:
    """Something large."""


async def test_what_waits_for_who_has_gone_is_given_back_at_once() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    kept = [Kept(), Kept()]
    given_back = [weakref.ref(each) for each in kept]

    def steps(kept: Kept) -> Iterator[int]:
        yield 70_000
        assert kept

    openings = [opener.take("a", steps(each), lambda: None) for each in kept]
    kept.clear()
    openings[1].cancel()
    assert given_back[1]() is None
    # A turn is under way, in another thread.
    openings[0].cancel()
    worker.tasks.pop()()
    await asyncio.sleep(0)
    assert given_back[0]() is None
    opener.close()


async def test_few_bytes_are_opened_for_clients_that_wanted_no_answer() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    done: list[int] = []

    def wait(number: int) -> None:
        opening = opener.take("a", iter([1]), lambda: done.append(number))
        opener.client_has_gone(opening, 10_000_000)

    for number in range(5):
        wait(number)
    for _ in range(10):
        if worker.tasks:
            worker.tasks.pop()()
        await asyncio.sleep(0)
    assert done == [0, 1, 2]
    wait(5)
    worker.tasks.pop()()
    await asyncio.sleep(0)
    assert done == [0, 1, 2, 5]
    opener.close()


async def test_batches_for_a_compacted_topic_are_looked_at_in_turns_too() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    config = LogConfig.from_properties({"cleanup.policy": "compact"})
    large = Closed(bytearray(batch(os.urandom(40_000)) * 10), config, "t-0")
    small = Closed(bytearray(batch(b"1")), config, "t-0")
    order: list[str] = []
    opener.open("a", [large], lambda outcomes: order.append("large"))
    opener.open("b", [small], lambda outcomes: order.append("small"))
    turns = 0
    while len(order) < 2:
        (task,) = worker.tasks
        worker.tasks.clear()
        task()
        await asyncio.sleep(0)
        turns += 1
    assert order == ["small", "large"]
    assert turns in range(6, 8)
    opener.close()


async def test_of_one_party_a_request_is_opened_after_the_other() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    config = LogConfig.from_properties({"compression.type": "gzip"})
    large = [Closed(bytearray(batch(os.urandom(70_000))), config, f"t-{n}") for n in range(3)]
    small = [Closed(bytearray(batch(b"1")), config, "t-0")]
    order: list[str] = []
    opener.open("a", large, lambda outcomes: order.append("large"))
    opener.open("a", small, lambda outcomes: order.append("small"))
    while len(order) < 2:
        (task,) = worker.tasks
        worker.tasks.clear()
        task()
        await asyncio.sleep(0)
    assert order == ["large", "small"]
    opener.close()


async def test_who_goes_while_the_last_batch_is_opened_is_told_nothing() -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    closed = [Closed(bytearray(batch(b"1")), LogConfig.from_properties({}), "t-0")]
    told: list[str] = []
    opening = opener.open("a", closed, lambda outcomes: told.append("gone"))
    opener.open("a", closed, lambda outcomes: told.append("there"))
    worker.tasks.pop()()
    opening.cancel()
    while not told:
        await asyncio.sleep(0)
        if worker.tasks:
            worker.tasks.pop()()
    assert told == ["there"]
    opener.close()


async def test_what_fails_unexpectedly_keeps_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = Steps()
    opener = BatchOpener(worker)
    config = LogConfig.from_properties({})
    fine = Closed(bytearray(batch(b"1")), config, "t-0")
    bad = Closed(cast("bytearray", "no batches at all"), config, "t-1")
    told: list[list[type[Outcome]]] = []
    for closed in ([fine, bad], [fine]):
        opener.open("a", closed, lambda outcomes: told.append([type(each) for each in outcomes]))
    while len(told) < 2:
        (task,) = worker.tasks
        worker.tasks.clear()
        task()
        await asyncio.sleep(0)
    assert told == [[Opened, errors.UnknownServerError], [Opened]]
    assert "batches for t-1 could not be opened" in caplog.text
    opener.close()
