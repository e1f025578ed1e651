"""The thread in which schemas are compared: whose steps come next, and who has to try again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gateway.schema_registry.comparisons import Comparisons
from gateway.schema_registry.errors import RegistryError


@pytest_asyncio.fixture
async def comparisons() -> AsyncIterator[Comparisons]:
    """One that looks at the others after each step, and takes four requests at once."""
    made = Comparisons(waiting_max=4, share_max=4, slice_s=0.0)
    yield made
    made.close()


class Work:
    """Steps that are noted, the first of which waits until it may go on."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.begun = asyncio.Event()
        self.may_go_on = threading.Event()
        self._loop = asyncio.get_running_loop()

    def waiting(self, name: str, count: int = 1) -> Iterator[None]:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.may_go_on.wait(60)
        yield from self.steps(name, count)

    def steps(self, name: str, count: int = 1) -> Iterator[None]:
        for _ in range(count):
            self.taken.append(name)
            yield


async def test_a_little_work_waits_for_one_step_of_much(comparisons: Comparisons) -> None:
    work = Work()
    many = [
        asyncio.create_task(comparisons.run("ann", work.waiting("ann", 50))),
        asyncio.create_task(comparisons.run("ann", work.steps("ann", 50))),
    ]
    await work.begun.wait()
    few = asyncio.create_task(comparisons.run("bob", work.steps("bob", 1)))
    await asyncio.sleep(0)
    work.may_go_on.set()
    await few
    await asyncio.gather(*many)
    assert work.taken == ["ann", "bob", *["ann"] * 99]


async def test_one_of_much_and_one_of_much_take_turns(comparisons: Comparisons) -> None:
    work = Work()
    tasks = [
        asyncio.create_task(comparisons.run("ann", work.waiting("ann", 200))),
        asyncio.create_task(comparisons.run("bob", work.steps("bob", 200))),
    ]
    await work.begun.wait()
    work.may_go_on.set()
    await asyncio.gather(*tasks)
    # Neither is done while the other one has got nowhere.
    assert "bob" in work.taken[:100] and "ann" in work.taken[-200:]


async def test_too_many_requests_are_told_when_to_come_again(comparisons: Comparisons) -> None:
    work = Work()

    async def refusal(party: str) -> RegistryError:
        with pytest.raises(RegistryError) as refused:
            await comparisons.run(party, work.steps(party))
        return refused.value

    tasks = [asyncio.create_task(comparisons.run("ann", work.waiting("ann")))]
    await work.begun.wait()
    tasks.append(asyncio.create_task(comparisons.run("ann", work.steps("ann"))))
    await asyncio.sleep(0)
    # Half of the places are left for others.
    error = await refusal("ann")
    assert (error.status, error.retry_after_s) == (429, 2)
    for party in ("bob", "carl"):
        tasks.append(asyncio.create_task(comparisons.run(party, work.steps(party))))
        await asyncio.sleep(0)
    error = await refusal("dora")
    assert (error.status, error.retry_after_s) == (503, 2)
    work.may_go_on.set()
    await asyncio.gather(*tasks)
    await comparisons.run("dora", work.steps("dora"))
    assert sorted(work.taken) == ["ann", "ann", "bob", "carl", "dora"]


async def test_whoever_waits_no_longer_takes_no_step(comparisons: Comparisons) -> None:
    work = Work()
    first = asyncio.create_task(comparisons.run("ann", work.waiting("ann")))
    await work.begun.wait()
    second = asyncio.create_task(comparisons.run("ann", work.steps("second")))
    third = asyncio.create_task(comparisons.run("bob", work.steps("third")))
    await asyncio.sleep(0)
    for task in (second, third):
        task.cancel()
    work.may_go_on.set()
    await first
    await comparisons.run("bob", work.steps("bob"))
    assert work.taken == ["ann", "bob"]


async def test_an_error_is_told_to_whom_it_belongs(comparisons: Comparisons) -> None:
    def failing() -> Iterator[None]:
        yield
        raise RegistryError(42201, "no schema")

    work = Work()
    failed, done = await asyncio.gather(
        comparisons.run("ann", failing()),
        comparisons.run("ann", work.steps("ann", 3)),
        return_exceptions=True,
    )
    assert isinstance(failed, RegistryError) and done is None
    assert work.taken == ["ann"] * 3
