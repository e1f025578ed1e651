"""Starts processes, waits until they are ready, restarts those that die, stops all of them.

A process says that it is ready by the protocol of sd_notify(3) (`waylog.notify`). What it prints
goes to a rotating file. A process that dies is started again after a pause that doubles while it
keeps dying; a supervisor that dies takes its processes with it (Linux's parent-death signal).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import logging.handlers
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

LOG_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 3
PAUSE_FIRST_S: Final = 0.1
PAUSE_LONGEST_S: Final = 5.0
#: A process that lived this long is healthy: its next death starts from the first pause again.
HEALTHY_AFTER_S: Final = 10.0
STOP_TIMEOUT_S: Final = 10.0
_LINE_BYTES: Final = 64 * 1024
_PR_SET_PDEATHSIG: Final = 1


class StartError(Exception):
    """A process did not become ready; the message has the last lines that it printed."""


@dataclass(frozen=True)
class ProcessSpec:
    """One process to be kept alive."""

    name: str
    argv: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 60.0


def _die_with_parent() -> None:
    # Runs in the child between fork and exec: a supervisor killed by -9 leaves nothing behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Process:
    """One supervised process over all its lives."""

    def __init__(self, spec: ProcessSpec, log_path: Path, changed: Callable[[], None]) -> None:
        self.spec = spec
        self.restarts = 0
        self.pid: int | None = None
        self.ready = asyncio.Event()
        self._changed = changed
        self._stopping = False
        self._process: asyncio.subprocess.Process | None = None
        self._last_lines: list[str] = []
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log = logging.handlers.RotatingFileHandler(
            log_path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8"
        )
        self._notify_name = f"waylog-{os.getpid()}-{id(self):x}"
        self._notify = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        # An address in Linux's abstract namespace leaves no file behind.
        self._notify.bind("\0" + self._notify_name)
        asyncio.get_running_loop().add_reader(self._notify, self._on_notify)

    async def run(self) -> None:
        """Start it, and start it again whenever it ends, until `stop`."""
        pause_s = PAUSE_FIRST_S
        while not self._stopping:
            started = time.monotonic()
            status = await self._run_once()
            self.ready.clear()
            if self._stopping:
                return
            lived_s = time.monotonic() - started
            if lived_s > HEALTHY_AFTER_S:
                pause_s = PAUSE_FIRST_S
            self.restarts += 1
            logger.warning(
                "%s ended with status %s after %.1f s; starting it again in %.1f s",
                self.spec.name,
                status,
                lived_s,
                pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_LONGEST_S)

    async def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL to its process group if that takes too long."""
        self._stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                logger.warning("%s did not stop in time and is killed", self.spec.name)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    def close(self) -> None:
        """Give back the socket and the log file."""
        asyncio.get_running_loop().remove_reader(self._notify)
        self._notify.close()
        self._log.close()

    @property
    def last_lines(self) -> str:
        """The newest lines that it printed."""
        return "\n".join(self._last_lines)

    async def _run_once(self) -> int:
        # A pipe of our own: asyncio's `wait` would also wait until the process's children, which
        # inherit its output, have closed asyncio's.
        reading, writing = os.pipe()
        output = asyncio.StreamReader(limit=_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(reading, "rb")
        )
        try:
            return await self._run_with_output(writing, output)
        finally:
            transport.close()
            self.pid = None

    async def _run_with_output(self, writing: int, output: asyncio.StreamReader) -> int:
        self._process = await asyncio.create_subprocess_exec(
            *self.spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=writing,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C on the terminal is for the supervisor, which then stops all in order.
            start_new_session=True,
            preexec_fn=_die_with_parent,
            env=os.environ | self.spec.environment | {"NOTIFY_SOCKET": "@" + self._notify_name},
        )
        os.close(writing)
        self.pid = self._process.pid
        self._changed()
        copying = asyncio.create_task(self._copy_output(output))
        try:
            return await self._process.wait()
        finally:
            # Its own children (a JVM) must not work on beside the next one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(copying, 1.0)

    async def _copy_output(self, output: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await output.readline()
            except ValueError:  # longer than _LINE_BYTES: what was read is dropped
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip("\n")
            self._last_lines = [*self._last_lines[-19:], text]
            self._log.emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))

    def _on_notify(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message = self._notify.recv(4096)
                if b"READY=1" in message.splitlines():
                    self.ready.set()
                    self._changed()


class Supervisor:
    """Keeps a set of processes alive. `processes.json` in `state_folder` says which are running."""

    def __init__(self, state_folder: Path, log_folder: Path) -> None:
        self._state_path = state_folder / "processes.json"
        self._log_folder = log_folder
        self._processes: dict[str, _Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        state_folder.mkdir(parents=True, exist_ok=True)

    def start(self, spec: ProcessSpec) -> None:
        """Start a process and keep it alive; `wait_ready` tells when it serves."""
        process = _Process(spec, self._log_folder / f"{spec.name}.log", self._write_state)
        self._processes[spec.name] = process
        self._tasks[spec.name] = asyncio.create_task(process.run(), name=spec.name)

    async def wait_ready(self, name: str) -> None:
        """Wait until the process says that it serves; raises StartError if it does not in time."""
        process = self._processes[name]
        try:
            await asyncio.wait_for(process.ready.wait(), process.spec.ready_timeout_s)
        except TimeoutError:
            raise StartError(
                f"{name} was not ready within {process.spec.ready_timeout_s:.0f} s; "
                f"it printed last:\n{process.last_lines}"
            ) from None

    async def stop(self) -> None:
        """Stop all processes, the newest first."""
        for name in reversed(self._processes):
            process = self._processes[name]
            await process.stop()
            self._tasks[name].cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._tasks[name]
            process.close()
        self._processes.clear()
        self._tasks.clear()
        self._state_path.unlink(missing_ok=True)

    def _write_state(self) -> None:
        state = {
            name: {
                "pid": process.pid,
                "ready": process.ready.is_set(),
                "restarts": process.restarts,
                "argv": list(process.spec.argv),
            }
            for name, process in self._processes.items()
        }
        aside = self._state_path.with_suffix(".tmp")
        aside.write_text(json.dumps(state, indent=1), encoding="utf-8")
        aside.replace(self._state_path)
