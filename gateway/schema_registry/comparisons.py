"""The thread in which schemas are parsed and compared, shared fairly by those who ask.

Work comes in steps, each the parsing of a schema or the comparison of two. Of the parties that wait
the one goes on whose work has taken the least time; one that comes begins with the least of the
others (start-time fair queueing; Goyal, Vin and Cheng, 1996). So a party with little work waits for
one step of each other party at most, however much those have. A party is a user, or the address of
somebody who needs no login.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from gateway.schema_registry.errors import too_many_comparisons
from waylog.network.shares import Shares
from waylog.process.background import spawn

#: Requests that wait, in total and of one party.
WAITING_MAX: Final = 64
SHARE_MAX: Final = 32
#: Seconds for which a party's steps go on before others are looked at.
SLICE_S: Final = 0.05


class _Job(NamedTuple):
    steps: Iterator[None]
    done: asyncio.Future[None]


class Comparisons:
    """The thread, and those who wait for it; used on one event loop."""

    def __init__(
        self, waiting_max: int = WAITING_MAX, share_max: int = SHARE_MAX, slice_s: float = SLICE_S
    ) -> None:
        self._slice_s: Final = slice_s
        self._shares: Final = Shares(waiting_max, share_max)
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="schemas-comparisons")
        self._jobs: Final[dict[str, deque[_Job]]] = {}
        #: Seconds that the work of each waiting party has taken.
        self._taken_s: Final[dict[str, float]] = {}
        self._serving: asyncio.Task[None] | None = None

    async def run(self, party: str, steps: Iterator[None]) -> None:
        """Take all steps in the thread; raises what they raise.

        Raises RegistryError if too many requests wait, of this party or of all.
        """
        if not self._shares.take(party):
            raise too_many_comparisons(of_one=self._shares.held_by(party) > 0)
        job = _Job(steps, asyncio.get_running_loop().create_future())
        try:
            self._add(party, job)
            await job.done
        finally:
            self._shares.give_back(party)
            self._remove(party, job)

    def close(self) -> None:
        """Take no more steps."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._serving is not None:
            self._serving.cancel()

    def _add(self, party: str, job: _Job) -> None:
        if party not in self._jobs:
            self._taken_s[party] = min(self._taken_s.values(), default=0.0)
        self._jobs.setdefault(party, deque()).append(job)
        if self._serving is None or self._serving.done():
            self._serving = spawn(self._serve(), "comparing schemas")

    def _remove(self, party: str, job: _Job) -> None:
        jobs = self._jobs.get(party)
        if jobs is None or job not in jobs:
            return
        jobs.remove(job)
        if not jobs:
            del self._jobs[party], self._taken_s[party]

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            party = min(self._jobs, key=self._taken_s.__getitem__)
            job = self._jobs[party][0]
            began = time.perf_counter()
            try:
                is_done = await loop.run_in_executor(
                    self._thread, _take_steps, job.steps, self._slice_s
                )
            except Exception as error:
                is_done = True
                if not job.done.done():
                    job.done.set_exception(error)
            if party in self._taken_s:
                self._taken_s[party] += time.perf_counter() - began
            if is_done:
                if not job.done.done():
                    job.done.set_result(None)
                self._remove(party, job)


def _take_steps(steps: Iterator[None], seconds: float) -> bool:
    """Take steps for so long; return whether there are no more."""
    ends = time.monotonic() + seconds
    return all(time.monotonic() < ends for _ in steps)
