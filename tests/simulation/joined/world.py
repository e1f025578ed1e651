"""Simulated time, and event loops that run on it: asyncio code of many processes in one thread."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import random
import warnings
from asyncio import events
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.simulation.joined.sockets import Sockets


class World:
    """State that all simulated processes share: time, the seed's random numbers, the history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.executed = 0
        self.faults: Counter[str] = Counter()
        self.history: list[str] = []
        #: Errors that must not happen within production code: unexpected exceptions.
        self.errors: list[str] = []
        #: Called after each step of a process, which may have ended something.
        self.after_step: Callable[[SimulatedLoop], None] = lambda loop: None
        self._numbers = itertools.count()
        self._queue: list[tuple[float, int, SimulatedLoop | None, _Step]] = []
        self._ready: deque[tuple[SimulatedLoop | None, _Step]] = deque()

    def note(self, text: str) -> None:
        """Add a line to the history."""
        self.history.append(f"{self.now:9.4f} {text}")

    def digest(self) -> str:
        """Return a digest of the history, which is the same for the same seed."""
        text = "\n".join(self.history) + f"\n{self.executed}"
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def push(self, time: float, loop: SimulatedLoop | None, handle: _Step) -> None:
        """Run a handle at a time."""
        if time <= self.now:
            self._ready.append((loop, handle))
        else:
            heapq.heappush(self._queue, (time, next(self._numbers), loop, handle))

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Run an action that belongs to no process at a time."""
        self.push(time, None, _Action(action))

    def after(self, delay: float, action: Callable[[], object]) -> None:
        """Run an action that belongs to no process after a delay."""
        self.at(self.now + delay, action)

    def run_until(self, time: float) -> None:
        """Run everything that is due up to a time."""
        queue, ready = self._queue, self._ready
        while True:
            while ready:
                self._run(*ready.popleft())
            if not queue or queue[0][0] > time:
                break
            self.now, _, loop, handle = heapq.heappop(queue)
            self._run(loop, handle)
        self.now = max(self.now, time)

    def _run(self, loop: SimulatedLoop | None, handle: _Step) -> None:
        if handle._cancelled:
            return
        if loop is None:
            self.executed += 1
            handle._run()
            return
        if loop.is_over:
            return
        if loop.stalled is not None:
            loop.stalled.append(handle)
            return
        self.executed += 1
        events._set_running_loop(loop)
        try:
            handle._run()
        except SystemExit:
            loop.is_over = True
        finally:
            events._set_running_loop(None)
        self.after_step(loop)


def _end(coroutine: Any) -> None:
    """Close a coroutine, which may await a few more times while it is closed."""
    for _ in range(20):
        try:
            coroutine.close()
        except (RuntimeError, SystemExit, Exception):
            continue
        return


class _Step(Protocol):
    """A handle of asyncio, or an object with the same interface."""

    _cancelled: bool

    def _run(self) -> object: ...


class _Action:
    """A handle without an event loop."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._cancelled = False
        self._action = action

    def _run(self) -> object:
        return self._action()


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one run of a process."""

    def __init__(self, world: World, name: str, clock: Callable[[], float], rate: float) -> None:
        """`clock` is this machine's monotonic time, which runs at a `rate` of its own."""
        self.world = world
        self.name = name
        self.sockets: Sockets | None = None
        #: The process is gone, and none of its code may run any more.
        self.is_over = False
        #: The handles that wait while the process is stopped; None if it is not.
        self.stalled: list[_Step] | None = None
        self._clock = clock
        self._rate = rate
        self._tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self._clock()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    def is_closed(self) -> bool:
        return self.is_over

    # ------------------------------------------------------------------------------------ callbacks

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        self.world.push(self.world.now, self, handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> events.TimerHandle:
        return self.call_at(self._clock() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> events.TimerHandle:
        handle = events.TimerHandle(when, callback, args, self, context)
        # Even the earliest timer is due in a later iteration of the loop.
        wait = max((when - self._clock()) / self._rate, 0.0) + 1e-6
        self.world.push(self.world.now + wait, self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        return

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > 200:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_over:
            self.world.errors.append(f"{self.name}: {context}")

    def stall(self) -> None:
        """Stop the process: it does nothing until `go_on`."""
        if self.stalled is None:
            self.stalled = []

    def go_on(self) -> None:
        """Resume the process; handles that waited run now."""
        waited, self.stalled = self.stalled, None
        for handle in waited or ():
            self.world.push(self.world.now, self, handle)

    def bury(self) -> None:
        """Ensure that no code of a process that is gone runs again, even when it is collected."""
        self.is_over = True
        self.stalled = None
        with warnings.catch_warnings():
            # Coroutines that its cleanup code creates are never awaited.
            warnings.simplefilter("ignore", RuntimeWarning)
            for task in self._tasks:
                _end(task.get_coro())
        self._tasks.clear()

    # -------------------------------------------------------------------------- threads and sockets

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    def remove_reader(self, fd: object) -> bool:
        return False

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        assert self.sockets is not None
        return await self.sockets.create_connection(*args, **kwargs)
