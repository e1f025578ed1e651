"""A child process whose end the event loop notices without a thread or a signal handler."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
# Loaded before any fork: a child of a process with threads should do as little as possible.
_LIBC: Final = ctypes.CDLL(None)


def _die_with_parent() -> None:
    # Runs in the child between fork and exec: a supervisor killed by -9 leaves nothing behind.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ChildProcess:
    """One life of a process in a session of its own, without standard input.

    asyncio's own subprocesses lose a child that was forked but cannot be watched (no descriptor, no
    thread left); here it is ended then.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], output: int) -> None:
        """Start it, with `output` as standard output and error.

        Raises OSError, subprocess.SubprocessError; then there is no process and no descriptor.
        """
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C on the terminal is for the supervisor, which then stops all in order.
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 (it only calls the kernel)
            env=environment,
        )
        self.pid = self._popen.pid
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        try:
            self._watched = os.pidfd_open(self.pid)
            try:
                self._loop.add_reader(self._watched, self._on_end)
            except BaseException:
                os.close(self._watched)
                raise
        except BaseException:
            self.kill_group()
            self._popen.wait()
            raise

    @property
    def has_ended(self) -> bool:
        """Tell whether its exit status is known."""
        return self._ended.done()

    async def wait(self) -> int:
        """Its exit status; negative: the signal that ended it."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()

    def resume(self) -> None:
        """Have it, and what it has started itself, go on where somebody has stopped it (SIGCONT).

        A process that is stopped does not hear that it is to end, and whoever waits for its answer
        does not get one.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def kill_group(self) -> None:
        """End it, and what it has started itself (SIGKILL)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._watched)
        os.close(self._watched)
        self._ended.set_result(self._popen.wait())
