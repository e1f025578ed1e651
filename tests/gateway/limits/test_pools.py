"""Pools with a share for each party."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.pools import Hold, Turns
from waylog.network.shares import ShareExceeded, Shares


def test_a_share_is_held_as_long_as_it_is_used() -> None:
    shares = Shares(100, 60)
    with shares.hold("ada", 40):
        with pytest.raises(ShareExceeded), shares.hold("ada", 40):
            pass
        with shares.hold("bob", 30):
            assert shares.used == 70
    assert shares.used == shares.held_by("ada") == 0
    with suppress(ValueError), shares.hold("ada", 60):
        raise ValueError
    assert shares.used == shares.held_by("ada") == 0


async def test_what_waits_for_the_log_is_held_until_the_log_has_answered_all_of_it() -> None:
    shares = Shares(100, 60)
    hold = Hold(shares, "ada", 20)
    hold.grow(10)
    with pytest.raises(ShareExceeded):
        hold.grow(40)
    futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
    hold.keep_until(futures)
    hold.release()  # the caller no longer waits
    for future in futures:
        assert shares.held_by("ada") == 30
        future.set_result(None)
        await asyncio.sleep(0)
    assert shares.used == shares.held_by("ada") == 0
    hold.release()
    assert shares.take("bob", 30)
    hold.release()
    assert shares.used == 30


async def test_a_hold_that_waits_for_nothing_is_let_go_once() -> None:
    shares = Shares(100, 60)
    first, second = Hold(shares, "ada", 20), Hold(shares, "ada", 20)
    first.release()
    first.release()
    assert shares.held_by("ada") == 20
    second.release()
    assert not shares.used


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), max_size=200))
def test_a_pool_is_never_overdrawn_and_always_has_something_for_one_more(
    asked: list[tuple[int, int]],
) -> None:
    shares = Shares(1_000, 400)
    held: dict[str, int] = {}
    for party, amount in asked:
        name = f"party {party}"
        if shares.take(name, amount):
            held[name] = held.get(name, 0) + amount
            assert held[name] <= 400
        assert shares.used == sum(held.values()) <= 1_000
    # Five parties may have taken all they could: another still gets up to half of what each has.
    assert shares.take("late", 15)


def test_a_share_may_be_held_whole_and_not_more() -> None:
    shares = Shares(200, 60)
    assert shares.take("ada", 60)
    assert not shares.take("ada", 1)


def test_who_asks_for_nothing_gets_it_from_an_empty_pool_too() -> None:
    shares = Shares(100, 100)
    assert shares.take("greedy", 50) and not shares.take("greedy")
    assert shares.take("greedy", 0)
    shares.give_back("late", 0)
    assert (shares.used, shares.held_by("greedy")) == (50, 50)


async def test_parties_that_hold_nothing_are_forgotten() -> None:
    """Otherwise invented addresses would fill the memory."""
    shares, turns = Shares(100, 60), Turns(2, 1)
    before = pickle.dumps((shares, turns))
    for number in range(3):
        with shares.hold(f"party {number}"):
            assert not shares.take(f"party {number}", 90)
        assert shares.take(f"other {number}", 0)
        async with turns.turn(f"party {number}"), turns.turn("ada"):
            waiting = [asyncio.create_task(_once(turns, name)) for name in ("bob", "cleo")]
            await asyncio.sleep(0)
            waiting[0].cancel()
        with suppress(asyncio.CancelledError):
            await waiting[0]
        async with asyncio.timeout(60):
            await waiting[1]
    assert pickle.dumps((shares, turns)) == before


def test_one_party_alone_cannot_have_more_than_half() -> None:
    shares = Shares(100, 100)
    while shares.take("greedy"):
        pass
    assert shares.held_by("greedy") == 50
    assert shares.take("late", 25)


async def test_turns_go_round_between_those_who_wait() -> None:
    turns = Turns(2, 2)
    served: list[str] = []
    go_on = asyncio.Event()

    async def ask(party: str) -> None:
        async with turns.turn(party):
            served.append(party)
            await go_on.wait()

    greedy = [asyncio.create_task(ask("greedy")) for _ in range(20)]
    await asyncio.sleep(0)
    late = [asyncio.create_task(ask(name)) for name in ("ada", "bob")]
    await asyncio.sleep(0)
    assert served == ["greedy"] * 2
    go_on.set()
    async with asyncio.timeout(60):
        await asyncio.gather(*greedy, *late)
    # Each of the others has to wait for at most one turn of the greedy party.
    assert set(served[2:6]) >= {"ada", "bob"}
    assert len(served) == 22


async def test_of_one_party_whoever_came_first_is_served_first() -> None:
    turns = Turns(1, 1)
    served: list[int] = []

    async def ask(number: int) -> None:
        async with turns.turn("ada"):
            served.append(number)

    async with turns.turn("bob"):
        tasks = [asyncio.create_task(ask(number)) for number in range(3)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert served == [0, 1, 2]


async def test_a_turn_that_comes_to_somebody_who_has_just_given_up_goes_to_the_next() -> None:
    turns = Turns(1, 1)
    async with turns.turn("ada"):
        gone, next_one = (asyncio.create_task(_once(turns, name)) for name in ("bob", "cleo"))
        await asyncio.sleep(0)
        gone.cancel()  # the task learns of it after the turn has come
    async with asyncio.timeout(60):
        await next_one
        await _once(turns, "ada")


async def test_a_turn_is_over_when_it_fails() -> None:
    turns = Turns(1, 1)
    with suppress(ValueError):
        async with turns.turn("ada"):
            raise ValueError
    async with asyncio.timeout(60):
        await _once(turns, "bob")


async def test_a_party_has_no_more_turns_at_a_time_than_its_share() -> None:
    turns = Turns(4, 2)
    go_on = asyncio.Event()
    running = 0

    async def ask() -> None:
        nonlocal running
        async with turns.turn("greedy"):
            running += 1
            await go_on.wait()
            running -= 1

    tasks = [asyncio.create_task(ask()) for _ in range(5)]
    await asyncio.sleep(0)
    assert running == 2
    async with asyncio.timeout(60), turns.turn("late"):
        assert running == 2
    go_on.set()
    await asyncio.gather(*tasks)


async def test_who_gives_up_waiting_leaves_no_hole() -> None:
    turns = Turns(1, 1, waiting_each=2)
    async with turns.turn("ada"):
        waiting = [asyncio.create_task(_once(turns, "bob")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ShareExceeded):
            await _once(turns, "bob")
        waiting[0].cancel()
        with suppress(asyncio.CancelledError):
            await waiting[0]
    async with asyncio.timeout(60):
        await waiting[1]
        await _once(turns, "ada")
    # Cancelled at the moment when its turn has come.
    async with asyncio.timeout(60):
        for _ in range(3):
            async with turns.turn("ada"):
                task = asyncio.create_task(_once(turns, "bob"))
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await _once(turns, "ada")


async def test_who_gives_up_waiting_makes_room_for_others_of_the_party_to_wait() -> None:
    turns = Turns(1, 1, waiting_each=1)
    async with turns.turn("ada"):
        for _ in range(3):
            waiting = asyncio.create_task(_once(turns, "bob"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        last = asyncio.create_task(_once(turns, "bob"))
    async with asyncio.timeout(60):
        await last


async def _once(turns: Turns, party: str) -> None:
    async with turns.turn(party):
        await asyncio.sleep(0)
