"""The frame of a process that serves: how it ends, and that all is closed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from waylog.process.background import spawn
from waylog.process.serving import ServingProcess, serving
from waylog.process.stop_limit import StopLimit


def closes(process: ServingProcess, said: list[str], *names: str) -> None:
    for name in names:
        process.closing.callback(said.append, name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_and_what_began_last_is_closed_first(number: int) -> None:
    said: list[str] = []
    async with serving(limit=StopLimit()) as process:
        closes(process, said, "first", "last")
        process.ready()
        os.kill(os.getpid(), number)
        await process.stopped()
        assert process.is_stopping
    assert said == ["last", "first"]
    assert not process.has_failed


async def test_background_work_that_fails_ends_it() -> None:
    said: list[str] = []

    async def fail() -> None:
        raise ValueError("torn")

    async with serving(limit=StopLimit()) as process:
        closes(process, said, "all")
        failing = [spawn(fail(), "one"), spawn(fail(), "two")]
        await process.stopped()
    assert process.has_failed
    assert process.failure is failing[0].exception()
    assert said == ["all"]


async def test_a_callback_ends_it_only_if_its_module_counts() -> None:
    said: list[str] = []

    def fail(name: str) -> None:
        said.append(name)
        raise ValueError(name)

    loop = asyncio.get_running_loop()
    async with serving(callbacks_of=("tests.",), limit=StopLimit()) as process:
        loop.call_soon(fail, "counted")
        await process.stopped()
    assert process.has_failed
    async with serving(callbacks_of=("gateway.",), limit=StopLimit()) as process:
        loop.call_soon(fail, "other")
        loop.call_soon(process.stop)
        await process.stopped()
    assert not process.has_failed
    assert said == ["counted", "other"]


async def test_a_stop_amid_the_start_cancels_it_and_ends_the_block() -> None:
    said: list[str] = []

    async def begin() -> None:
        asyncio.get_running_loop().call_soon(process.stop)
        try:
            await asyncio.Event().wait()
        finally:
            said.append("cancelled")

    async with serving(limit=StopLimit()) as process:
        closes(process, said, "closed")
        await process.start(begin())
        said.append("has begun")
    assert said == ["cancelled", "closed"]
    assert not process.has_failed


async def test_a_step_of_the_start_gives_its_result_or_its_error() -> None:
    said: list[str] = []

    async def begin(*, well: bool) -> str:
        if not well:
            raise OSError("no address")
        return "address"

    with pytest.raises(OSError, match="no address"):
        async with serving(limit=StopLimit()) as process:
            closes(process, said, "closed")
            assert await process.start(begin(well=True)) == "address"
            await process.start(begin(well=False))
    assert said == ["closed"]


async def test_whoever_serves_may_end_it_as_a_failure() -> None:
    async with serving(limit=StopLimit()) as process:
        process.stop(has_failed=True)
        process.stop()
        await process.stopped()
    assert process.has_failed
    assert process.failure is None
