"""What runs beside everything else: its unexpected end is logged, and somebody acts on it.

A task that dies of an exception says nothing until it is collected, and one that its owner keeps
never says anything. `spawn` reports the end of a task at once to its event loop's exception
handler, where exceptions of callbacks arrive too; `end_on_failure` is a handler that ends the
process with a traceback in its log, so that a supervisor starts it again. `TaskSet` is for tasks of
single clients, `Rounds` for work that may fail and is tried again at its next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from waylog.process.seldom import SeldomSaid

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The key of a loop's exception context that names a task of `spawn`.
BACKGROUND: Final = "background"


def spawn(
    coroutine: Coroutine[Any, Any, T],
    name: str,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Task[T]:
    """Start a task whose exception is reported as soon as it ends; the caller keeps the task."""
    task = (loop or asyncio.get_running_loop()).create_task(coroutine, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        name = task.get_name()
        task.get_loop().call_exception_handler(
            {"message": f"{name} has ended", "exception": error, BACKGROUND: name}
        )


def end_on_failure(
    loop: asyncio.AbstractEventLoop,
    end: Callable[[Exception], None],
    *,
    callbacks_of: tuple[str, ...] = (),
    except_of: tuple[str, ...] = (),
) -> None:
    """Have `end` called when a task of `spawn` or a callback fails; all else is logged as ever.

    Callbacks count that begin in modules whose names begin with one of `callbacks_of` and none of
    `except_of`: a timer that fails is not set again, and what hangs on it would wait for ever.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Exception):
            loop.default_exception_handler(context)
            return
        name = context.get(BACKGROUND)
        if name is None:
            module = _module(error) if "handle" in context else ""
            if not module.startswith(callbacks_of) or module.startswith(except_of or ("-",)):
                loop.default_exception_handler(context)
                return
            name = module
        logger.critical("%s failed; this process ends", name, exc_info=error)
        end(error)

    loop.set_exception_handler(handle)


def _module(error: Exception) -> str:
    """The first module of ours in which a callback was."""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith(("asyncio", "uvloop")):
            return module
        trace = trace.tb_next
    return ""


class TaskSet:
    """Tasks of one owner, each for one client or one request.

    A task that fails unexpectedly ends alone: its traceback is logged, every ten seconds at most,
    and `on_failure` may tell its client.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()
        self._said = SeldomSaid()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self,
        coroutine: Coroutine[Any, Any, None],
        on_failure: Callable[[Exception], None] | None = None,
    ) -> asyncio.Task[None]:
        """Start a task, and keep it until it ends."""
        task = asyncio.get_running_loop().create_task(coroutine, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._end, on_failure))
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        self.cancel()
        await self.wait()

    async def wait(self) -> None:
        """Wait until the tasks that are here now have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _end(
        self, on_failure: Callable[[Exception], None] | None, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, Exception):
            return
        unsaid = self._said.count(task.get_loop().time())
        if unsaid is not None:
            others = f" ({unsaid} more since the last such line)" if unsaid else ""
            logger.error("%s failed%s", self._name, others, exc_info=error)
        if on_failure is not None:
            on_failure(error)


class Rounds:
    """Work that is done again and again; a round that fails is logged, and the next one comes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said: str | None = None

    async def run(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Pause, work, and so on, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.once(work)

    async def once(self, work: Callable[[], Awaitable[None]]) -> None:
        """One round; the traceback of a failure is logged when it is another than the last."""
        try:
            await work()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if said != self._said:
                logger.exception("%s failed; it goes on with the next round", self._name)
            self._said = said
        else:
            self._said = None
