"""Turns of the event loop: one party's many connections get no more of them than one would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from functools import partial

import pytest

from gateway.limits.turn_clock import STRANGER, TURN_S, Asker, PartyTurns


def work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def worked(turns: PartyTurns, party: str, seconds: float) -> None:
    outer = turns.begin(party)
    work(seconds)
    turns.end(party, outer)


async def test_who_has_had_its_turn_waits_and_others_do_not() -> None:
    turns = PartyTurns()
    assert turns.may_begin("a")
    worked(turns, "a", 1.1 * TURN_S)
    assert not turns.may_begin("a")
    assert turns.left_s("a") <= 0
    assert turns.may_begin("b")
    ran: list[str] = []
    turns.call("a", partial(ran.append, "a"))
    turns.call("b", partial(ran.append, "b"))
    assert ran == ["b"]
    # What the party has had beyond its turn, it has not in the next one, nor, if the machine has
    # interrupted it, in some more.
    async with asyncio.timeout(60):
        while len(ran) < 2 or not turns.may_begin("a"):
            await asyncio.sleep(0)
    assert ran == ["b", "a"]


async def test_what_a_party_does_at_once_counts_while_it_does_it() -> None:
    turns = PartyTurns()
    outer = turns.begin("a")
    assert turns.left_s("a") > 0
    work(1.1 * TURN_S)
    assert turns.left_s("a") <= 0
    turns.end("a", outer)


async def test_each_is_charged_for_its_own_work_while_another_ones_is_interrupted() -> None:
    turns = PartyTurns()
    outer = turns.begin("a")
    inner = turns.begin("b")
    work(1.1 * TURN_S)
    turns.end("b", inner)
    turns.end("a", outer)
    assert turns.may_begin("a")
    assert not turns.may_begin("b")


async def test_those_who_wait_are_served_one_after_the_other() -> None:
    turns = PartyTurns()
    ran: list[str] = []

    def long(name: str) -> None:
        ran.append(name[0])
        work(1.1 * TURN_S)

    for number in range(20):
        turns.call_soon("many", partial(long, f"many {number}"))
    turns.call_soon("few", partial(long, "few"))
    turns.call_soon("some", partial(long, "some"))
    async with asyncio.timeout(60):
        while len(ran) < 22:
            before = len(ran)
            await asyncio.sleep(0)
            # However long the turn is, a party begins nothing after its time, which is longer while
            # no other party waits.
            assert ran[before:].count("m") <= (1 if len(ran) <= 3 else 5)
    assert ran[:3] == ["m", "f", "s"]


async def test_who_works_alone_begins_more_in_a_turn() -> None:
    turns = PartyTurns()
    ran = most = 0

    def long() -> None:
        nonlocal ran
        ran += 1
        work(1.1 * TURN_S)

    for _ in range(60):
        turns.call_soon("a", long)
    async with asyncio.timeout(60):
        while ran < 60:
            before = ran
            await asyncio.sleep(0)
            most = max(most, ran - before)
    # Fewer where this process is interrupted, which it is not all the time.
    assert 2 <= most <= 5


async def test_nobody_is_alone_while_a_stranger_waits() -> None:
    turns = PartyTurns()
    ran: list[str] = []

    def long(party: str) -> None:
        ran.append(party)
        work(1.1 * TURN_S)

    for party in ("ada", f"{STRANGER}127.0.0.1"):
        for _ in range(10):
            turns.call_soon(party, partial(long, party))
    await asyncio.sleep(0)
    assert ran.count("ada") == 1


async def test_what_a_party_has_had_beyond_its_share_is_over_at_some_time() -> None:
    turns = PartyTurns()
    worked(turns, "a", 20 * TURN_S)
    async with asyncio.timeout(60):
        while not turns.may_begin("a"):
            await asyncio.sleep(0)


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


async def test_work_that_fails_is_over() -> None:
    turns = PartyTurns()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
    with pytest.raises(ZeroDivisionError):
        turns.call("a", lambda: 1 // 0)
    work(1.1 * TURN_S)
    # Nobody works, so that no time of this turn passes.
    assert turns.left_s("b") == TURN_S
    turns.call_soon("a", lambda: 1 // 0)
    async with asyncio.timeout(60):
        while not turns.may_begin("a"):
            await asyncio.sleep(0)
    work(3.1 * TURN_S)
    assert turns.left_s("b") >= TURN_S


async def test_what_waits_of_a_party_keeps_its_order() -> None:
    turns = PartyTurns()
    for party in ("ada", f"{STRANGER}127.0.0.1"):
        ran: list[int] = []
        for number in range(5):
            turns.call_soon(party, partial(ran.append, number))
        # What comes now must not overtake the others, though the party has time left.
        assert not turns.may_begin(party)
        turns.call(party, partial(ran.append, 5))
        assert ran == []
        async with asyncio.timeout(60):
            while len(ran) < 6:
                await asyncio.sleep(0)
        assert ran == [0, 1, 2, 3, 4, 5]


async def test_work_counts_that_another_ones_interrupts() -> None:
    turns = PartyTurns()
    outer = turns.begin("a")
    work(1.1 * TURN_S)
    turns.end("b", turns.begin("b"))
    turns.end("a", outer)
    assert not turns.may_begin("a")


async def test_who_waits_no_more_pays_nothing() -> None:
    turns = PartyTurns()
    waiting = [asyncio.ensure_future(turns.wait("a")) for _ in range(10)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.sleep(0)
    assert turns.left_s("a") == 3 * TURN_S


async def test_who_is_cancelled_while_waiting_takes_nobodys_turn() -> None:
    turns = PartyTurns()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    first, second = (asyncio.ensure_future(turns.wait("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second
    assert failures == []


async def most_begun_in_a_turn(turns: PartyTurns, parties: Sequence[str]) -> int:
    """Let a task of each party work, and return how many of them began in one turn at most."""
    begun = most = 0

    async def step() -> None:
        nonlocal begun
        begun += 1
        work(TURN_S / 2)

    tasks = [asyncio.ensure_future(turns.run(Asker(party), step())) for party in parties]
    async with asyncio.timeout(60):
        while begun < len(tasks):
            before = begun
            await asyncio.sleep(0)
            most = max(most, begun - before)
        await asyncio.gather(*tasks)
    return most


async def test_few_tasks_of_a_party_begin_in_a_turn_of_the_loop() -> None:
    turns = PartyTurns()
    worked(turns, "a", 1.1 * TURN_S)
    # Nobody knows before how long they take, and what interrupts this process counts for them. No
    # other party waits.
    assert await most_begun_in_a_turn(turns, ["a"] * 100) <= 25


async def test_work_without_waiting_is_divided_among_the_tasks_of_a_party() -> None:
    turns = PartyTurns()
    done: list[str] = []

    async def steps(name: str) -> None:
        for _ in range(12):
            await turns.let_others_work("a")
            done.append(name)
            work(2 * TURN_S)

    await asyncio.gather(*(turns.run(Asker("a"), steps(name)) for name in "xy"))
    assert len(done) == 24
    # Each has begun before the other one is half done.
    assert set(done[:6]) == {"x", "y"}


async def test_a_task_is_charged_to_whom_it_turns_out_to_belong() -> None:
    turns = PartyTurns()
    asker = Asker("stranger")

    async def sign_in() -> str:
        asker.party = "user"
        work(1.1 * TURN_S)
        await asyncio.sleep(0)
        return "done"

    running = asyncio.ensure_future(turns.run(asker, sign_in()))
    await asyncio.sleep(0)
    assert turns.may_begin("stranger")
    assert not turns.may_begin("user")
    assert await running == "done"


async def test_a_task_that_begins_within_another_ones_work_is_charged_to_its_own_party() -> None:
    turns = PartyTurns()

    async def inner() -> None:
        work(1.1 * TURN_S)

    async def outer() -> None:
        await turns.charge(Asker("b"), inner())
        work(1.1 * TURN_S)
        # What it does now counts while it does it.
        assert turns.left_s("a") <= 0

    await turns.charge(Asker("a"), outer())
    assert not turns.may_begin("a")
    assert not turns.may_begin("b")


async def test_a_task_that_gets_its_turn_has_all_of_its_time() -> None:
    turns = PartyTurns()
    await turns.wait("a")
    # Nobody else works or waits, so that it may work longer than for one share.
    assert turns.left_s("a") == 3 * TURN_S


async def test_strangers_whose_tasks_have_got_their_turns_may_begin_more() -> None:
    turns = PartyTurns()
    may_begin: list[bool] = []

    async def stranger(number: int) -> None:
        await turns.wait(f"{STRANGER}{number}")
        may_begin.append(turns.may_begin(f"{STRANGER}other"))

    # As many get their turns as may work for a short time each, and these do not work at all.
    await asyncio.gather(*(stranger(number) for number in range(20)))
    assert may_begin.count(False) <= 1


async def test_a_task_is_told_of_errors_and_of_its_end() -> None:
    turns = PartyTurns()
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await turns.run(Asker("a"), fail())
    running = asyncio.ensure_future(turns.run(Asker("a"), wait("running")))
    await asyncio.sleep(0)
    worked(turns, "a", 20 * TURN_S)
    # It has not begun, and does not begin.
    waiting = asyncio.ensure_future(turns.run(Asker("a"), wait("waiting")))
    await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert ended == ["running"]


async def test_work_in_turns_can_be_a_task_of_its_own() -> None:
    async def answer() -> int:
        return 42

    running = PartyTurns().run(Asker("a"), answer())
    # Python 3.12 makes no task of a coroutine that is a generator.
    assert isinstance(running, Coroutine)
    assert await asyncio.create_task(running) == 42


async def test_however_many_strangers_wait_users_come_first() -> None:
    turns = PartyTurns()
    ran: list[str] = []

    def serve(party: str) -> None:
        ran.append(party)
        work(TURN_S / 2)

    strangers = [f"{STRANGER}127.0.0.1 {number}" for number in range(100)]
    for party in strangers:
        turns.call_soon(party, partial(serve, party))
    # Another one's request comes when all of them wait, and comes before all but one turn of them.
    turns.call_soon("ada", partial(serve, "ada"))
    await asyncio.sleep(0)
    assert ran[0] == "ada"
    assert len(ran) < 50
    async with asyncio.timeout(60):
        while len(ran) < 101:
            await asyncio.sleep(0)
    assert sorted(ran) == sorted([*strangers, "ada"])


async def test_strangers_together_have_a_part_of_a_turn() -> None:
    turns = PartyTurns()
    begun = 0
    while turns.may_begin(f"{STRANGER}{begun}"):
        worked(turns, f"{STRANGER}{begun}", TURN_S / 2)
        begun += 1
    assert 1 <= begun <= 10
    assert turns.may_begin("ada")
    # A step that the machine has interrupted is paid for in later turns.
    async with asyncio.timeout(60):
        while not turns.may_begin(f"{STRANGER}{begun}"):
            await asyncio.sleep(0)


async def test_few_of_the_strangers_whose_tasks_wait_work_in_one_turn() -> None:
    turns = PartyTurns()
    number = 0
    while turns.may_begin(f"{STRANGER}first"):
        worked(turns, f"{STRANGER}{number}", TURN_S)
        number += 1
    strangers = [f"{STRANGER}{number}" for number in range(300)]
    # To give a task its turn takes no time, and all of them work after that.
    assert await most_begun_in_a_turn(turns, strangers) <= 30


async def test_a_task_that_handles_an_error_goes_on() -> None:
    handled: list[str] = []

    async def steps() -> str:
        for name in ("first", "second"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                handled.append(name)
                for _ in range(3):
                    await asyncio.sleep(0)
        return "done"

    running = asyncio.create_task(PartyTurns().run(Asker("a"), steps()))
    async with asyncio.timeout(60):
        for count in (1, 2):
            await asyncio.sleep(0)
            running.cancel()
            while len(handled) < count:
                await asyncio.sleep(0)
            for _ in range(5):
                await asyncio.sleep(0)
        assert await running == "done"
    assert handled == ["first", "second"]
