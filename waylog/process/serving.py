"""The frame of a process that serves until it is told to stop, or fails.

    async with serving(callbacks_of=("consumers.", "waylog.")) as process:
        worker = await process.start(begin())
        process.closing.push_async_callback(worker.close)
        process.ready()
        await process.stopped()
    return EXIT_FAILED if process.has_failed else EXIT_DONE

SIGTERM and SIGINT have it stop, as do background work that fails (`waylog.process.background`) and
`stop`. Whatever is on the stack `closing` is closed then, which may take as long as `StopLimit`
allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, TypeVar

from waylog.process.background import end_on_failure
from waylog.process.notify import notify_ready
from waylog.process.stop_limit import FAILED_STOP_MAX_S, StopLimit
from waylog.process.stop_signals import STOP_SIGNALS
from waylog.process.watchdog import EventLoopWatchdog

T = TypeVar("T")

logger = logging.getLogger(__name__)

_WATCH_S: Final = 0.5


class _Stopped(Exception):
    """The process is to stop before it has begun."""


class ServingProcess:
    """A process that serves, as `serving` gives it. Methods are called on the event loop."""

    def __init__(self, limit: StopLimit) -> None:
        self._limit: Final = limit
        self._stopping: Final = asyncio.Event()
        self._watchdog: EventLoopWatchdog | None = None
        #: What is closed at the end, whatever has ended the process.
        self.closing: Final = AsyncExitStack()
        self.has_failed = False
        #: What has failed first of background work.
        self.failure: Exception | None = None

    @property
    def is_stopping(self) -> bool:
        """Tell whether the process is to stop."""
        return self._stopping.is_set()

    def stop(self, *, has_failed: bool = False, limit_s: float | None = None) -> None:
        """Have the process stop, after a failure or not; may be called again.

        `limit_s` is the most that the stop may take, if it is less than usual.
        """
        self.has_failed = self.has_failed or has_failed
        if limit_s is not None:
            self._limit.begin(limit_s)
        self._stopping.set()

    def fail(self, error: Exception) -> None:
        """Have the process stop soon, since its background work has failed."""
        if self.failure is None:
            self.failure = error
            self.stop(has_failed=True, limit_s=FAILED_STOP_MAX_S)

    async def start(self, work: Awaitable[T]) -> T:
        """Wait for a step of the start, and return its result.

        If the process is to stop meanwhile, the step is cancelled, and the block of `serving` ends.
        """
        starting = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            is_interrupted = not starting.done()
        finally:
            stopping.cancel()
            starting.cancel()
        if is_interrupted:
            self._limit.begin()
            await asyncio.wait((starting,))
            if starting.cancelled() or starting.exception() is not None:
                raise _Stopped
        return starting.result()

    def ready(self) -> None:
        """Tell the supervisor that the process serves, and from now on that it makes progress."""
        notify_ready()
        self._watchdog = EventLoopWatchdog(asyncio.get_running_loop())

    async def stopped(self, fatal: Callable[[], str | None] = lambda: None) -> None:
        """Wait until the process is to stop.

        That is so, too, once `fatal`, which is called twice a second, says why the process is of no
        use any more; it counts as failed then.
        """
        while not self.is_stopping:
            if (why := fatal()) is not None:
                logger.critical("stopping: %s", why)
                self.stop(has_failed=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_S):
                    await self._stopping.wait()

    def end_progress(self) -> None:
        """Report no more progress."""
        if self._watchdog is not None:
            self._watchdog.close()


@asynccontextmanager
async def serving(
    *,
    callbacks_of: tuple[str, ...] = (),
    except_of: tuple[str, ...] = (),
    mistakes: tuple[type[Exception], ...] = (),
    limit: StopLimit | None = None,
) -> AsyncIterator[ServingProcess]:
    """Give the process; see the module. The tuples are as in `end_on_failure`.

    `limit` ends a stop that takes too long; by default it ends the process.
    """
    if limit is None:
        limit = StopLimit()
        limit.armed = True
    process = ServingProcess(limit)
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, process.stop)
    end_on_failure(
        *(loop, process.fail), callbacks_of=callbacks_of, except_of=except_of, mistakes=mistakes
    )
    try:
        async with process.closing:
            try:
                yield process
            except _Stopped:
                pass
            finally:
                # Closing may take longer than the supervisor waits for a sign of progress, which is
                # reported until the end.
                limit.begin()
    finally:
        process.end_progress()
