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
# Loaded before any fork: a child of a multi-threaded process should do as little as possible.
_LIBC: Final = ctypes.CDLL(None)


def _die_with_parent() -> None:
    # Runs in the child between fork and exec, so that a supervisor killed by -9 leaves no child.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ChildProcess:
    """One run of a process, in a session of its own and without standard input.

    asyncio's own subprocesses lose a child that was forked but cannot be watched (no descriptor, no
    thread left); this class kills such a child.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], output: int) -> None:
        """Start the process, with `output` as standard output and error.

        Raises OSError, subprocess.SubprocessError; then no process and no descriptor is left.
        """
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C on the terminal goes to the supervisor, which then stops all in order.
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
        """True once its exit status is known."""
        return self._ended.done()

    async def wait(self) -> int:
        """Wait for the exit status; a negative one is the signal that ended the process."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.terminate()

    def abort(self) -> None:
        """Have the process print where its threads are, and end (SIGABRT)."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(signal.SIGABRT)

    def resume(self) -> None:
        """Resume the process and its children after they were stopped (SIGCONT).

        A stopped process does not handle SIGTERM and does not answer.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGCONT)

    def kill_group(self) -> None:
        """Kill the process and its children (SIGKILL)."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._watched)
        try:
            os.close(self._watched)
            status = self._popen.wait()
        except Exception as error:
            # Nothing else tells those who wait that it has ended.
            self._ended.set_exception(error)
        else:
            self._ended.set_result(status)
