"""Background tasks: their unexpected end is logged, and may end the process.

asyncio reports the exception of a task only when the task is collected, so never while its owner
keeps it. `spawn` reports it at once to the event loop's exception handler, where exceptions of
callbacks arrive too; `fail` does so for what is no task. `end_on_failure` is a handler that ends
the process with a traceback in its log, so that a supervisor restarts it. `TaskSet` is for tasks
that each serve one client.
`PeriodicTask` is for work that may fail and is tried again at its next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from waylog.process.log_throttle import LogThrottle, RepeatedFailure, since_last_line

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The key of a loop's exception context that names a task of `spawn`.
BACKGROUND: Final = "background"


def spawn(
    coroutine: Coroutine[Any, Any, T],
    name: str,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    endless: bool = False,
) -> asyncio.Task[T]:
    """Start a task whose failure is reported as soon as it ends; the caller keeps the task.

    A task has failed that ends with an exception, or cancelled without a call of its `cancel`. An
    `endless` one has also failed when it returns.
    """
    task = (loop or asyncio.get_running_loop()).create_task(coroutine, name=name)
    task.add_done_callback(partial(_report, endless))
    return task


def _report(endless: bool, task: asyncio.Task[Any]) -> None:
    error: BaseException | None
    if task.cancelling():
        return
    try:
        error = task.exception()
    except asyncio.CancelledError as cancelled:
        error = RuntimeError("it ended cancelled, though nobody had cancelled it")
        error.__cause__ = cancelled
    if error is None and endless:
        error = RuntimeError("it returned, though it has no end")
    if error is not None:
        fail(task.get_loop(), task.get_name(), error)


def fail(loop: asyncio.AbstractEventLoop, name: str, error: BaseException) -> None:
    """Report that background work has failed, as `spawn` does for a task.

    For callbacks of protocols, whose exceptions would only end their connections, and for threads.
    Call it on the loop's thread.
    """
    loop.call_exception_handler(
        {"message": f"{name} has failed", "exception": _exception(error), BACKGROUND: name}
    )


@contextmanager
def failure_ends_process(loop: asyncio.AbstractEventLoop, name: str) -> Iterator[None]:
    """Report an exception of the block as `fail` does, and raise it again.

    For steps of a shared state machine within a client's request: a step that is half taken leaves
    others waiting for ever, while the failed request alone would cost one client its connection.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:  # others end the event loop
        fail(loop, name, error)
        raise


def _exception(error: BaseException) -> Exception:
    """Return the error, wrapped if it could pass for the interpreter's exit or a cancellation."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def end_on_failure(
    loop: asyncio.AbstractEventLoop,
    end: Callable[[Exception], None],
    *,
    callbacks_of: tuple[str, ...] = (),
    except_of: tuple[str, ...] = (),
    mistakes: tuple[type[Exception], ...] = (),
) -> None:
    """Call `end` when work reported by `spawn` or `fail`, or a callback, fails; log other errors.

    Only callbacks count that begin in modules whose names begin with one of `callbacks_of` and none
    of `except_of`: a timer whose callback fails is not set again, and what depends on it would wait
    for ever. `mistakes` are errors of the operator: of them the text is logged and no traceback.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        raised = context.get("exception")
        if raised is None:
            loop.default_exception_handler(context)
            return
        name = context.get(BACKGROUND)
        if name is None:
            module = _module(raised) if "handle" in context else ""
            if not module.startswith(callbacks_of) or module.startswith(except_of or ("-",)):
                loop.default_exception_handler(context)
                return
            name = module
        if isinstance(raised, mistakes):
            logger.critical("%s failed; this process ends: %s", name, raised)
        else:
            logger.critical("%s failed; this process ends", name, exc_info=raised)
        end(_exception(raised))

    loop.set_exception_handler(handle)


def _module(error: BaseException) -> str:
    """Return the name of the first module outside of the event loop in the traceback."""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith(("asyncio", "uvloop")):
            return module
        trace = trace.tb_next
    return ""


class TaskSet:
    """Tasks of one owner, each for one client or one request.

    A task that fails unexpectedly does not end the process: its traceback is logged, at most every
    ten seconds, and `on_failure` may tell its client.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()
        self._said = LogThrottle()

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
            others = since_last_line(unsaid)
            logger.error("%s failed%s", self._name, others, exc_info=error)
        if on_failure is not None:
            on_failure(error)


class PeriodicTask:
    """Periodic work; a round that fails is logged, and the next one comes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failure = RepeatedFailure()

    def spawn(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Start a task for `run`; the caller keeps it."""
        return spawn(self.run(interval_s, work), self._name, endless=True)

    async def run(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Pause and work in turn, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.once(work)

    async def once(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run one round; log the traceback of a failure if it differs from the last one."""
        try:
            await work()
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if self._failure.is_new(error):
                logger.exception("%s failed; it goes on with the next round", self._name)
        else:
            self._failure.succeeded()
