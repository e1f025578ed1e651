from __future__ import annotations

import asyncio

import pytest

from tests.event_loops import on_both_event_loops
from waylog.config import ConfigError
from waylog.process.background import (
    PeriodicTask,
    TaskSet,
    end_on_failure,
    failure_ends_process,
    spawn,
)
from waylog.process.background import fail as report_failure


async def fail() -> None:
    await asyncio.sleep(0)
    raise RuntimeError("nobody has thought of this")


@on_both_event_loops
async def test_the_end_of_a_task_that_is_kept_is_logged_and_acted_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append)
    task = spawn(fail(), "the reader")
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert [str(each) for each in ended] == ["nobody has thought of this"]
    assert "the reader failed; this process ends" in caplog.text
    assert "Traceback" in caplog.text


@on_both_event_loops
async def test_a_mistake_of_the_operator_ends_the_process_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append, mistakes=(ConfigError,))

    async def read() -> None:
        raise ConfigError("the file has another key")

    await asyncio.wait((spawn(read(), "the reader"),))
    await asyncio.sleep(0)
    assert [str(each) for each in ended] == ["the file has another key"]
    assert "the reader failed; this process ends: the file has another key" in caplog.text
    assert "Traceback" not in caplog.text


@on_both_event_loops
async def test_a_task_that_is_cancelled_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append)
    task = spawn(asyncio.sleep(60), "the reader")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    assert not ended
    assert not caplog.records


@on_both_event_loops
async def test_a_task_that_nobody_has_cancelled_and_an_endless_one_that_returns_have_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    tasks = [
        spawn(cancelled(), "the reader"),
        spawn(asyncio.sleep(0), "the writer", endless=True),
        spawn(asyncio.sleep(0), "a look"),
    ]
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert [str(each) for each in ended] == [
        "it ended cancelled, though nobody had cancelled it",
        "it returned, though it has no end",
    ]
    assert "the reader failed; this process ends" in caplog.text
    assert "raise asyncio.CancelledError" in caplog.text
    assert "the writer failed; this process ends" in caplog.text


@on_both_event_loops
async def test_what_is_not_an_exception_of_this_process_ends_it_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    loop = asyncio.get_running_loop()
    end_on_failure(loop, ended.append)
    report_failure(loop, "thread flusher", SystemExit(0))
    assert [str(each) for each in ended] == ["SystemExit: 0"]
    assert "thread flusher failed; this process ends" in caplog.text


@on_both_event_loops
async def test_a_step_of_a_shared_state_that_fails_is_reported_and_its_caller_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    loop = asyncio.get_running_loop()
    end_on_failure(loop, ended.append)
    with pytest.raises(KeyError), failure_ends_process(loop, "the coordinator"):
        raise KeyError("nobody has thought of this")
    assert len(ended) == 1
    assert "the coordinator failed; this process ends" in caplog.text
    with failure_ends_process(loop, "the coordinator"):
        pass
    assert len(ended) == 1


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
@pytest.mark.parametrize(
    ("callbacks_of", "except_of", "count"),
    [(("tests.",), (), 1), (("tests.",), ("tests.waylog.",), 0), ((), (), 0), (("else.",), (), 0)],
)
@on_both_event_loops
async def test_a_callback_that_fails_ends_the_process_where_its_module_counts(
    callbacks_of: tuple[str, ...],
    except_of: tuple[str, ...],
    count: int,
    error: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    loop = asyncio.get_running_loop()
    end_on_failure(loop, ended.append, callbacks_of=callbacks_of, except_of=except_of)

    def tick() -> None:
        raise error("nobody has thought of this")

    loop.call_later(0, tick)
    async with asyncio.timeout(60):
        while "nobody has thought of this" not in caplog.text:
            await asyncio.sleep(0)
    assert len(ended) == count


@on_both_event_loops
async def test_a_round_that_fails_is_logged_once_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = 0

    async def work() -> None:
        nonlocal done
        done += 1
        if done == 1:
            raise asyncio.CancelledError
        if done < 6 or done == 7:
            raise RuntimeError("nobody has thought of this")

    task = PeriodicTask("looking").spawn(0.001, work)
    async with asyncio.timeout(60):
        while done < 8:
            await asyncio.sleep(0.001)
    task.cancel()
    # Of the two kinds of failure each is told once, and once more when a round has gone well.
    assert caplog.text.count("looking failed; it goes on with the next round") == 3


@on_both_event_loops
async def test_periodic_work_that_is_cancelled_in_a_round_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = PeriodicTask("looking").spawn(0.0, work)
    async with asyncio.timeout(60):
        await begun.wait()
    task.cancel()
    await asyncio.wait((task,), timeout=60)
    assert task.cancelled()
    assert not caplog.records


@on_both_event_loops
async def test_a_task_for_one_client_fails_alone_and_its_client_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append)
    tasks, told = TaskSet("an answer"), list[Exception]()
    other = tasks.start(asyncio.sleep(60))
    await asyncio.wait((tasks.start(fail(), told.append), tasks.start(fail(), told.append)))
    await asyncio.sleep(0)
    assert [str(each) for each in told] == ["nobody has thought of this"] * 2
    assert not ended
    assert len(tasks) == 1
    assert not other.done()
    assert caplog.text.count("an answer failed") == 1  # the second within ten seconds
    assert "Traceback" in caplog.text
    await tasks.close()


@on_both_event_loops
async def test_tasks_of_an_owner_that_closes_are_cancelled_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks, told = TaskSet("an answer"), list[Exception]()
    begun = [tasks.start(asyncio.sleep(60), told.append) for _ in range(3)]
    await asyncio.sleep(0)
    await tasks.close()
    assert all(each.cancelled() for each in begun)
    await asyncio.sleep(0)
    assert len(tasks) == 0
    assert not told
    assert not caplog.records
    await tasks.close()
