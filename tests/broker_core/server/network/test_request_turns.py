"""Turns of connections that have sent more requests than fit into one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from broker_core.server.network.request_turns import NextTurn, RequestTurns
from tests.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def turns(clock: ManualClock) -> RequestTurns:
    return RequestTurns(asyncio.get_running_loop(), clock)


async def test_a_connection_has_a_millisecond(turns: RequestTurns, clock: ManualClock) -> None:
    end = turns.end_of_turn()
    clock.now += 0.0009
    assert not turns.is_over(end)
    clock.now += 0.0002
    assert turns.is_over(end)


async def test_parties_come_in_turn_in_the_next_iteration(turns: RequestTurns) -> None:
    served: list[str] = []
    for name in ("a1", "a2", "a3", "b1"):
        turns.wait(name[0], lambda name=name: served.append(name))  # type: ignore[misc]
    assert turns.are_taken and not served
    await asyncio.sleep(0)
    assert served == ["a1", "b1", "a2", "a3"]
    assert not turns.are_taken


async def test_after_four_milliseconds_others_have_the_loop(
    turns: RequestTurns, clock: ManualClock
) -> None:
    served: list[str] = []

    def work(name: str) -> Callable[[], None]:
        def take_turn() -> None:
            clock.now += 0.0015
            served.append(name)
            if name == "a":
                turns.wait("a", work("again"))

        return take_turn

    for name in "abcd":
        turns.wait(name, work(name))
    loop = asyncio.get_running_loop()
    loop.call_soon(served.append, "else")
    await asyncio.sleep(0)
    assert served == ["a", "b", "c", "else"]
    await asyncio.sleep(0)
    assert served[4:] == ["d", "again"]


async def test_who_waits_again_does_not_keep_the_loop(turns: RequestTurns) -> None:
    served: list[int] = []

    def take_turn() -> None:
        served.append(len(served))
        if len(served) < 5:
            turns.wait("a", take_turn)

    turns.wait("a", take_turn)
    for count in range(1, 6):
        await asyncio.sleep(0)
        assert len(served) == count
    await asyncio.sleep(0)
    assert len(served) == 5
    # The next one comes as soon as the first did.
    turns.wait("b", take_turn)
    await asyncio.sleep(0)
    assert len(served) == 6


async def test_one_that_fails_keeps_nobody_from_its_turn(
    turns: RequestTurns,
) -> None:
    failures: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    served: list[str] = []

    def fail() -> None:
        raise LookupError

    turns.wait("a", fail)
    turns.wait("b", lambda: served.append("b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert served == ["b"]
    assert [type(each) for each in failures] == [LookupError]


async def test_connections_share_what_fits_into_one_turn(
    turns: RequestTurns, clock: ManualClock
) -> None:
    """A connection with one request that takes long makes the others of the iteration wait."""
    for _ in range(3):
        assert not turns.must_wait
        end = turns.end_of_turn()
        clock.now += 0.002
        turns.ended(end)
    assert turns.must_wait
    assert not turns.are_taken
    await asyncio.sleep(0)
    assert not turns.must_wait
    turns.wait("a", lambda: None)
    assert turns.must_wait


async def test_who_is_woken_many_times_has_one_turn_and_who_has_left_none(
    turns: RequestTurns,
) -> None:
    served: list[str] = []
    stays = NextTurn(turns, "a", lambda: served.append("stays"))
    leaves = NextTurn(turns, "a", lambda: served.append("leaves"))
    for _ in range(2):
        for each in (stays, leaves, stays):
            each.ask()
        assert stays.is_due
        await asyncio.sleep(0)
        assert not stays.is_due
    assert served == ["stays", "leaves"] * 2
    leaves.ask()
    stays.ask()
    leaves.cancel()
    await asyncio.sleep(0)
    assert served[4:] == ["stays"]


async def test_a_turn_is_taken_now_if_nobody_waits(turns: RequestTurns) -> None:
    served: list[str] = []
    turn = NextTurn(turns, "a", lambda: served.append("a"))
    turn.take()
    assert served == ["a"] and not turn.is_due
    await asyncio.sleep(0)
    assert served == ["a"]


async def test_a_turn_that_is_taken_comes_once_and_behind_those_that_wait(
    turns: RequestTurns,
) -> None:
    served: list[str] = []
    turns.wait("b", lambda: served.append("b"))
    turn = NextTurn(turns, "a", lambda: served.append("a"))
    turn.take()
    turn.take()
    assert turn.is_due and not served
    await asyncio.sleep(0)
    assert served == ["b", "a"] and not turn.is_due


async def test_a_turn_that_comes_already_is_not_taken_before(turns: RequestTurns) -> None:
    served: list[str] = []
    turn = NextTurn(turns, "a", lambda: served.append("a"))
    turn.ask()
    turn.take()
    assert not served
    await asyncio.sleep(0)
    assert served == ["a"]


async def test_turns_that_are_taken_now_share_what_fits_into_one_turn(
    turns: RequestTurns, clock: ManualClock
) -> None:
    served: list[int] = []

    def work() -> None:
        clock.now += 0.003
        served.append(len(served))

    for _ in range(4):
        NextTurn(turns, "a", work).take()
    assert served == [0, 1]
    await asyncio.sleep(0)
    assert served == [0, 1, 2, 3]
