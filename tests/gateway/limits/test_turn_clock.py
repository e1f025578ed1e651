"""Turns of the event loop: one party's many connections get no more of them than one would."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from gateway.limits.turn_clock import TURN_S, PartyTurns, TurnClock


async def test_one_callback_of_a_party_runs_in_a_turn_of_the_loop() -> None:
    turns = PartyTurns()
    ran: list[str] = []
    for number in range(5):
        turns.call_soon("many", partial(ran.append, f"many-{number}"))
    turns.call_soon("few", lambda: ran.append("few-0"))
    for turn in range(1, 6):
        await asyncio.sleep(0)
        assert [each for each in ran if each.startswith("many")] == [
            f"many-{number}" for number in range(turn)
        ]
        assert "few-0" in ran


async def test_a_callback_may_ask_for_the_next_turn() -> None:
    turns = PartyTurns()
    count = 0

    def again() -> None:
        nonlocal count
        count += 1
        if count < 3:
            turns.call_soon("a", again)

    turns.call_soon("a", again)
    for expected in (1, 2, 3, 3):
        await asyncio.sleep(0)
        assert count == expected


async def test_a_callback_that_fails_does_not_keep_the_next_one_from_its_turn() -> None:
    turns = PartyTurns()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )
    ran: list[int] = []
    turns.call_soon("a", lambda: 1 // 0)
    turns.call_soon("a", lambda: ran.append(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ran == [1]
    assert [type(each) for each in failures] == [ZeroDivisionError]


async def test_who_is_cancelled_while_waiting_takes_nobodys_turn() -> None:
    turns = PartyTurns()
    first, second = (asyncio.ensure_future(turns.wait("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second


async def test_work_without_waiting_is_divided_among_the_tasks_of_a_party() -> None:
    turns = PartyTurns()
    worked: list[str] = []

    async def work(name: str) -> None:
        clock = TurnClock(turns, "a")
        for _ in range(4):
            clock.ask()
            await clock.work()
            worked.append(name)
            until = time.perf_counter() + 2 * TURN_S
            while time.perf_counter() < until:
                pass

    await asyncio.gather(work("x"), work("y"))
    assert len(worked) == 8
    assert worked not in (list("xxxxyyyy"), list("yyyyxxxx"))
