"""Turns to send, without a log: what becomes of records, and of what fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.delivery import Result
from consumers.forwarding.ledger import Arrived, Ledger
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import Failure, Pauses, Schedule
from consumers.forwarding.sending import Sending
from tests.consumers.forwarding.test_ledger import forwarding, record_of
from waylog.forwarding.definition import Progress, changed
from waylog.history.erasures import Erasure, Erasures
from waylog.sealing.sealing import LogProducer

KEY = ("anna", "1")
Deliver = Callable[[Route, Sequence[SinkRecord]], Awaitable[Result]]


class Server:
    """A Delivery that answers as it is told, and notes what it gets."""

    def __init__(self, answer: Deliver) -> None:
        self._answer = answer
        self.got: list[int | None] = []

    async def deliver(self, route: Route, records: Sequence[SinkRecord]) -> Result:
        self.got += [each.offset for each in records]
        return await self._answer(route, records)

    async def close(self) -> None:
        pass


async def takes_all(_route: Route, records: Sequence[SinkRecord]) -> Result:
    return Result(records)


@asynccontextmanager
async def sending(
    server: Server, ledger: Ledger, erasures: Erasures | None = None
) -> AsyncIterator[Route]:
    """Send what waits of the only forwarding, whose device has sent three fixes."""
    ledger.put(KEY, forwarding())
    ledger.assign(0, 0, 0, 3, {KEY: Progress(offset=0, live=True)})
    came = [Arrived("anna", "phone", each, record_of(0, each, "anna/phone")) for each in range(3)]
    ledger.take_live(0, came, 3, 0.0)
    (route,) = ledger.routes()
    schedule = Schedule(Pauses(first_s=0.01, longest_s=0.01))
    # No server refuses anything here, so that there are no dead letters.
    no_letters = cast("LogProducer", None)
    made = Sending(ledger, schedule, server, {}, no_letters, erasures or Erasures())
    schedule.offer(route, 0.0)
    task = asyncio.create_task(made.run())
    try:
        yield route
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.close()


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0.005)


async def test_what_is_erased_while_it_waits_is_not_sent() -> None:
    server, ledger, erasures = Server(takes_all), Ledger(), Erasures()
    erasures.add(Erasure("anna/phone", 1))
    async with sending(server, ledger, erasures) as route:
        await until(lambda: not route.waiting_count)
    assert server.got == [2]
    assert ledger.commits() == {0: 3}


async def test_an_error_of_ours_does_not_end_a_forwarding(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails_once(route: Route, records: Sequence[SinkRecord]) -> Result:
        if len(server.got) == 3:
            raise ZeroDivisionError("a mistake")
        return await takes_all(route, records)

    server, ledger = Server(fails_once), Ledger()
    async with sending(server, ledger) as route:
        await until(lambda: not route.waiting_count)
    assert server.got == [0, 1, 2] * 2
    assert route.error is None
    assert "ZeroDivisionError" in caplog.text


async def test_a_failure_of_what_was_changed_meanwhile_is_not_shown_of_the_new_one() -> None:
    async def changes_then_fails(route: Route, records: Sequence[SinkRecord]) -> Result:
        if len(server.got) > 3:
            return await takes_all(route, records)
        ledger.put(KEY, changed(route.forwarding, url="https://right"))
        return Result(failure=Failure("401 of the former server", is_set_up=True))

    server, ledger, shown = Server(changes_then_fails), Ledger(), set[str | None]()
    async with sending(server, ledger) as route:

        def is_sent() -> bool:
            shown.add(route.error)
            return not route.waiting_count

        await until(is_sent)
    assert len(server.got) == 6
    assert shown == {None}
