"""A simulated machine: an inaccurate clock, a disk, and a process that runs, hangs or is gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import partial
from traceback import format_exception
from typing import Any

from broker_core.environment import Environment
from tests.simulation.joined.sockets import Network, Sockets
from tests.simulation.joined.world import SimulatedLoop, World
from tests.simulation.simulated_disk import SimulatedDisk

_EPOCH_MS = 1_700_000_000_000


class Clock:
    """The clock of a machine: monotonic time has any start and rate, wall time jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._offset = world.random.uniform(100.0, 10_000.0)
        self.rate = world.random.uniform(0.97, 1.03)
        self.skew_ms = 0

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._world.now * 1000 * self.rate) + self.skew_ms

    def monotonic(self) -> float:
        return self._offset + self._world.now * self.rate


class _Worker:
    """A simulated thread: it does work in order, each piece after the disk's latency."""

    def __init__(self, machine: Machine, loop: SimulatedLoop) -> None:
        self._machine = machine
        self._loop = loop
        self._work: list[Callable[[], None]] = []
        self._due = 0.0

    def submit(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        world = self._machine.world
        self._due = max(self._due, world.now + self._machine.latency())
        world.push(self._due, self._loop, asyncio.Handle(self._next, (), self._loop))

    def _next(self) -> None:
        if self._work:
            self._work.pop(0)()

    def close(self) -> None:
        while self._work:
            self._work.pop(0)()


class _Executor(Executor):
    """An executor whose work is done at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class _Threads:
    machine: Machine
    loop: SimulatedLoop

    def worker(self, name: str) -> _Worker:
        return _Worker(self.machine, self.loop)

    def executor(self, count: int, name: str) -> Executor:
        return _Executor()


@dataclass(eq=False)
class Machine:
    """See the module. `main` is the process; it is started again after it has ended."""

    world: World
    network: Network
    name: str
    main: Callable[[Machine], Coroutine[Any, Any, None]]
    slow_s: float = 0.0
    #: The most seconds until a process that has ended is started again.
    restart_s_max: float = 1.5
    lives: int = 0
    boots: int = 0
    loop: SimulatedLoop | None = None
    disk: SimulatedDisk = field(init=False)
    clock: Clock = field(init=False)
    #: Ends the process as SIGTERM does.
    stop: Callable[[], None] | None = None
    _buried: list[SimulatedLoop] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(self.world.random)
        self.clock = Clock(self.world)

    def __str__(self) -> str:
        return self.name

    @property
    def is_running(self) -> bool:
        """True while a process runs."""
        return self.loop is not None

    def latency(self) -> float:
        """Return the latency of a disk operation in seconds."""
        return self.world.random.random() * 0.001 + self.world.random.random() * self.slow_s

    @property
    def environment(self) -> Environment:
        """The environment for the running process."""
        assert self.loop is not None
        assert self.loop.sockets is not None
        return Environment(
            self.clock,
            self.disk,
            _Threads(self, self.loop),
            random.Random(self.world.random.getrandbits(64)),
            f"{self.name}/{self.boots}",
            self.loop.sockets.acceptor,
        )

    def start(self) -> None:
        """Start a process if none runs."""
        if self.loop is not None:
            return
        self.lives += 1
        self.network.powered(self.name)
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            self.world, f"{self.name}/{self.lives}", self.clock.monotonic, self.clock.rate
        )
        self.loop.sockets = Sockets(self.network, self.loop, self.name)
        self.world.note(f"{self.name} starts")
        life = self.loop
        task = life.create_task(self._live(life))
        task.add_done_callback(partial(self._ended, life))

    async def _live(self, life: SimulatedLoop) -> None:
        await self.main(self)

    def _ended(self, life: SimulatedLoop, task: asyncio.Task[None]) -> None:
        if life is not self.loop:
            return
        error = None if task.cancelled() else task.exception()
        self.world.note(f"{self.name} ends")
        if error is not None:
            where = "" if isinstance(error, AssertionError) else "".join(format_exception(error))
            self.world.errors.append(f"{self.name} ends with {error!r}\n{where}".rstrip())
        self.world.after(0.0, partial(self._gone, life))

    def _gone(self, life: SimulatedLoop) -> None:
        if life is self.loop:
            # Data that could not be written to the disk is dropped from the page cache, too.
            self.kill(power=False, forgets=self.disk.sync_fails)

    def fail_syncs(self) -> None:
        """Make all syncs fail from now on, until the process has ended."""
        self.disk.sync_fails = True

    def kill(self, *, power: bool, forgets: bool = False, rots: bool = False) -> None:
        """End the process; with `power`, switch the machine off for a while.

        With `power` or `forgets`, data that was not synced is lost too.
        """
        life = self.loop
        if life is None:
            return
        self.loop = None
        self.stop = None
        life.is_over = True
        assert life.sockets is not None
        life.sockets.all_gone(power=power)
        self.disk = self.disk.handed_over()
        if power or forgets:
            self.disk.power_cut(rots=rots)
            self.boots += 1
        self._buried.append(life)
        self.world.after(self.world.random.random() * self.restart_s_max, self.start)

    def after_step(self) -> None:
        """Handle a power cut that happened within the last step."""
        if self.loop is not None and self.loop.is_over:
            self.world.faults["power cut within a disk step"] += 1
            self.world.note(f"{self.name} loses its power within a disk step")
            self.kill(power=True, rots=self.world.random.random() < 0.2)

    def bury(self) -> None:
        """Release everything at the end of the simulation."""
        if self.loop is not None:
            self._buried.append(self.loop)
            self.loop = None
        self.disk.is_gone = True
        for life in self._buried:
            life.bury()
        self._buried.clear()
