"""A helper process that answers questions, which it reads one after the other from its input.

It starts with the first question and ends when none came for a while.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from waylog.process.background import TaskSet

#: Seconds without a question after which the process is ended.
IDLE_S: Final = 60.0
_END_S: Final = 5.0


class HelperProcess:
    """A process `python -m MODULE ARGUMENTS`. Callers ensure that only one asks at a time."""

    def __init__(self, module: str, *arguments: str, idle_s: float = IDLE_S) -> None:
        self._command = (sys.executable, "-m", module, *arguments)
        self._idle_s = idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._ends = TaskSet("the end of a process that answers questions")

    @asynccontextmanager
    async def asked(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.StreamReader]]:
        """Yield the streams for a question and for its answer. Raises OSError."""
        if self._ending is not None:
            self._ending.cancel()
        try:
            process = await self._running()
            assert process.stdin is not None and process.stdout is not None
            yield process.stdin, process.stdout
        finally:
            self._ending = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    async def end(self) -> None:
        """End the process now; the next question starts another."""
        process, self._process = self._process, None
        await _ended(process)

    async def close(self) -> None:
        """End the process for good, if it runs."""
        if self._ending is not None:
            self._ending.cancel()
        await self.end()
        await self._ends.wait()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or _has_died(self._process):
            await self.end()
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe
            )
        return self._process

    def _end_idle(self) -> None:
        # From here on a question starts another process.
        process, self._process = self._process, None
        self._ends.start(_ended(process))


def _has_died(process: asyncio.subprocess.Process) -> bool:
    """Ask the kernel whether it has ended, since the event loop learns that a little later."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # it has been waited for already


async def _ended(process: asyncio.subprocess.Process | None) -> None:
    if process is None:
        return
    assert process.stdin is not None
    # The process ends at the end of its input.
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
