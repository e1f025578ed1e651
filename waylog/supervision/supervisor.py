"""Starts processes, waits until they are ready, restarts those that die, stops all of them.

A process reports that it is ready with the protocol of sd_notify(3) (`waylog.process.notify`). Its
output goes to a rotating file. A process that dies, or cannot be started, is started again after a
pause that doubles while it keeps dying; when the supervisor dies, its processes die too (Linux's
parent-death signal). A process that ends with exit status 2 before it was ready for the first time
has a wrong command line: it is not started again, and `wait_ready` raises the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from waylog.os_errors import describe_os_error
from waylog.process.background import spawn
from waylog.process.child_process import ChildProcess
from waylog.process.storage_trouble import StorageTrouble
from waylog.supervision.output_log import OutputLog

logger = logging.getLogger(__name__)

PAUSE_FIRST_S: Final = 0.1
PAUSE_LONGEST_S: Final = 5.0
#: A process that lived this long is healthy: after its next death the first pause applies again.
HEALTHY_AFTER_S: Final = 10.0
STOP_TIMEOUT_S: Final = 10.0
KILL_TIMEOUT_S: Final = 5.0
WATCHDOG_S: Final = 60.0
#: Seconds between two looks at whether a process reports progress.
_GUARD_S: Final = 1.0
#: Seconds for an aborted process to print where its threads are.
_ABORT_S: Final = 2.0
#: Seconds for which a failing first start is repeated before `wait_ready` raises its error.
FIRST_START_S: Final = 2.0
#: The exit status for a wrong command line: starting again would not help.
USAGE_STATUS: Final = 2
_FAILED_STATUS: Final = 1
#: A process that keeps ending for the same reason is reported once in this time.
SAY_AGAIN_S: Final = 60.0
_LINE_BYTES: Final = 64 * 1024
#: The notifications that are handled in one iteration of the event loop.
_MESSAGES_A_TURN: Final = 100
_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group (unix(7))


class StartError(Exception):
    """A process did not become ready; the message is one line with the process's last line."""

    def __init__(self, message: str, status: int = _FAILED_STATUS) -> None:
        """`status` is the exit status for the process that started it."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ProcessSpec:
    """The description of a process to keep alive."""

    name: str
    argv: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 60.0
    #: Seconds after which a process is restarted that has reported progress, and then no more.
    watchdog_s: float = WATCHDOG_S
    #: Seconds between SIGTERM and SIGKILL.
    stop_timeout_s: float = STOP_TIMEOUT_S


class _Process:
    """A supervised process, over all its restarts."""

    def __init__(self, spec: ProcessSpec, log_path: Path, changed: Callable[[], None]) -> None:
        """Open the log file and the notification socket; raises OSError."""
        self.spec = spec
        self.restarts = 0
        self.pid: int | None = None
        self.is_ready = False
        #: The status that it last reported of itself.
        self.status = ""
        #: Done when it is ready for the first time; fails with StartError if it never gets there.
        self.first_start: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Retrieves the exception, since there may be nobody who waits for it.
        self.first_start.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._changed = changed
        self._stopping = asyncio.Event()
        self._child: ChildProcess | None = None
        self._last_lines: list[str] = []
        self._last_words = ""  # the last line of earlier runs
        self._told = ""
        self._told_at = 0.0
        self._log = OutputLog(log_path)
        # Seconds since its last report of progress; None until the first one.
        self._silent_s: float | None = None
        self._notify_name = f"waylog-{os.getpid()}-{id(self):x}"
        try:
            self._notify = self._open_notify()
        except OSError:
            self._log.close()
            raise

    def _open_notify(self) -> socket.socket:
        notify = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        try:
            notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            # An address in Linux's abstract namespace leaves no file behind.
            notify.bind("\0" + self._notify_name)
            asyncio.get_running_loop().add_reader(notify, self._on_notify)
        except OSError:
            notify.close()
            raise
        return notify

    async def run(self) -> None:
        """Start it, and start it again whenever it ends, until `stop` or a usage error."""
        pause_s = PAUSE_FIRST_S
        first = time.monotonic()
        while not self._stopping.is_set():
            started = time.monotonic()
            status, what = await self._live()
            self.is_ready = False
            if self._stopping.is_set():
                return
            lived_s = time.monotonic() - started
            # A death by signal cannot be the fault of its command line.
            if not self.first_start.done() and status >= 0:
                reason = f"{self.spec.name} cannot start: {what}{self._printed(self._last_line())}"
                if status == USAGE_STATUS:
                    self.first_start.set_exception(StartError(reason, status))
                    self._changed()
                    return
                if time.monotonic() - first > FIRST_START_S:
                    self.first_start.set_exception(StartError(reason, status or _FAILED_STATUS))
            if lived_s > HEALTHY_AFTER_S:
                pause_s = PAUSE_FIRST_S
            self.restarts += 1
            self._tell(what, lived_s, pause_s)
            self._changed()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(pause_s * 2, PAUSE_LONGEST_S)

    def _tell(self, what: str, lived_s: float, pause_s: float) -> None:
        """Log why it is started again; the same reason only now and then."""
        now = time.monotonic()
        if what == self._told and now - self._told_at < SAY_AGAIN_S:
            return
        self._told, self._told_at = what, now
        logger.warning(
            "%s %s after %.1f s%s; starting it again in %.1f s",
            self.spec.name,
            what,
            lived_s,
            self._printed(self._last_line()),
            pause_s,
        )

    async def _live(self) -> tuple[int, str]:
        """Run it once; return its exit status and a description. Never raises for one run."""
        self._last_words = self._last_line() or self._last_words
        self._last_lines.clear()
        self.status = ""
        try:
            status = await self._run_once()
        except OSError as error:
            return _FAILED_STATUS, f"could not be started: {describe_os_error(error)}"
        except subprocess.SubprocessError as error:
            return _FAILED_STATUS, f"could not be started: {error}"
        except Exception:
            logger.exception("%s: its supervision failed", self.spec.name)
            return _FAILED_STATUS, "could not be supervised"
        if status < 0:
            return status, f"was ended by {_signal_name(-status)}"
        return status, f"ended with status {status}"

    async def stop(self) -> None:
        """Stop it with SIGTERM; its process group gets SIGKILL if that takes too long."""
        self._stopping.set()
        child = self._child
        if child is not None and not child.has_ended:
            child.terminate()
            try:
                await asyncio.wait_for(child.wait(), self.spec.stop_timeout_s)
            except TimeoutError:
                logger.warning("%s did not stop in time and is killed", self.spec.name)
                child.kill_group()
                try:
                    await asyncio.wait_for(child.wait(), KILL_TIMEOUT_S)
                except TimeoutError:
                    # It hangs in the kernel; the other processes still have to be stopped.
                    logger.error("%s, process %d, cannot be killed", self.spec.name, child.pid)

    def resume(self) -> None:
        """Let it continue if it was stopped with a signal (SIGSTOP)."""
        if self._child is not None and not self._child.has_ended:
            self._child.resume()

    def close(self) -> None:
        """Close the socket and the log file."""
        asyncio.get_running_loop().remove_reader(self._notify)
        self._notify.close()
        self._log.close()
        self.first_start.cancel()

    def late(self) -> StartError:
        """Return the error for a process that was not ready in time."""
        # The present run may have begun a moment ago, and have printed nothing yet.
        last = self._last_line() or self._last_words
        return StartError(
            f"{self.spec.name} was not ready within {self.spec.ready_timeout_s:.0f} s"
            f"{self._printed(last)}"
        )

    def _last_line(self) -> str:
        """Return the last line of the present run's output; empty if there is none yet."""
        return next((line.strip() for line in reversed(self._last_lines) if line.strip()), "")

    def _printed(self, last: str) -> str:
        said = f", its last line: {last}" if last else ""
        return f"{said} (log: {self._log.path})"

    async def _run_once(self) -> int:
        # A pipe of our own: its end is not waited for, because child processes inherit it.
        reading, writing = os.pipe()
        output = asyncio.StreamReader(limit=_LINE_BYTES)
        try:
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(output), _owned(reading)
            )
        except BaseException:
            os.close(writing)
            raise
        try:
            try:
                child = ChildProcess(
                    self.spec.argv,
                    os.environ
                    | self.spec.environment
                    | {
                        "NOTIFY_SOCKET": "@" + self._notify_name,
                        "WATCHDOG_USEC": str(round(self.spec.watchdog_s * 1e6)),
                    },
                    writing,
                )
            finally:
                os.close(writing)
            return await self._watch(child, output)
        finally:
            transport.close()
            self.pid = None

    async def _watch(self, child: ChildProcess, output: asyncio.StreamReader) -> int:
        self._child = child
        self.pid = child.pid
        copying = asyncio.create_task(self._copy_output(output), name=f"{self.spec.name} output")
        self._silent_s = None
        guarding = spawn(self._guard(child), f"{self.spec.name} watchdog")
        self._changed()
        try:
            if self._stopping.is_set():  # set while the process was being started
                child.terminate()
            return await child.wait()
        finally:
            guarding.cancel()
            # Its own children (a JVM) must not run on beside the next one.
            child.kill_group()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(copying, 1.0)

    async def _guard(self, child: ChildProcess) -> None:
        """Abort a process that no longer reports progress."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while self._silent_s is None or self._silent_s < self.spec.watchdog_s:
            await asyncio.sleep(_GUARD_S)
            now = loop.time()
            if self._silent_s is not None:
                # If this process was stopped, or the machine asleep, the child may have been too.
                self._silent_s += min(now - before, 2 * _GUARD_S)
            before = now
        if self._stopping.is_set():
            return
        logger.error(
            "%s has made no progress for %.0f s and is aborted", self.spec.name, self._silent_s
        )
        child.abort()
        await asyncio.sleep(_ABORT_S)
        child.kill_group()

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
            self._log.write(text)

    def _said(self, status: str) -> None:
        if status == self.status:
            return
        if status.startswith("not ready"):
            logger.error("%s is %s", self.spec.name, status)
        elif self.status.startswith("not ready"):
            logger.warning("%s is %s again", self.spec.name, status)
        self.status = status
        self._changed()

    def _on_notify(self) -> None:
        with contextlib.suppress(OSError):
            for _ in range(_MESSAGES_A_TURN):
                self._heard(*_received(self._notify))

    def _heard(self, message: bytes, account: int | None) -> None:
        if account not in (0, os.geteuid()):
            # Any local account may send to an abstract address.
            return
        lines = message.splitlines()
        for line in lines:
            if line.startswith(b"STATUS="):
                self._said(line.removeprefix(b"STATUS=").decode("utf-8", "replace"))
        if b"WATCHDOG=1" in lines:
            self._silent_s = 0.0
        if b"READY=1" in lines:
            self.is_ready = True
            if not self.first_start.done():
                self.first_start.set_result(None)
            self._changed()


def _received(notify: socket.socket) -> tuple[bytes, int | None]:
    """Return a message and the uid of its sender according to the kernel; raises OSError."""
    message, ancillary, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return message, _CREDENTIALS.unpack_from(data)[1]
    return message, None


def _owned(descriptor: int) -> IO[bytes]:
    try:
        return os.fdopen(descriptor, "rb", 0)
    except BaseException:
        os.close(descriptor)
        raise


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Supervisor:
    """Keeps a set of processes alive; `processes.json` in `state_folder` lists them."""

    def __init__(self, state_folder: Path, log_folder: Path) -> None:
        self._state_path = state_folder / "processes.json"
        self._log_folder = log_folder
        self._processes: dict[str, _Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        state_folder.mkdir(parents=True, exist_ok=True)
        self._trouble = StorageTrouble(state_folder, logger)

    def start(self, spec: ProcessSpec) -> None:
        """Start a process and keep it alive; `wait_ready` waits until it serves.

        Raises StartError if the supervisor lacks a resource that it needs for it.
        """
        try:
            process = _Process(spec, self._log_folder / f"{spec.name}.log", self._write_state)
        except OSError as error:
            raise StartError(f"{spec.name} cannot be started: {error}") from error
        self._processes[spec.name] = process
        process.first_start.add_done_callback(self._started)
        self._tasks[spec.name] = asyncio.create_task(process.run(), name=spec.name)

    async def wait_ready(self, name: str) -> None:
        """Wait until the process has been ready for the first time.

        Raises StartError if it cannot be started or is not ready in time.
        """
        process = self._processes[name]
        try:
            timeout_s = process.spec.ready_timeout_s
            await asyncio.wait_for(asyncio.shield(process.first_start), timeout_s)
        except TimeoutError:
            raise process.late() from None

    async def wait_refused(self) -> None:
        """Wait until the first start of a process ends with a usage error, maybe for ever.

        Raises that StartError.
        """
        await asyncio.shield(self._refused)

    def _started(self, first_start: asyncio.Future[None]) -> None:
        error = None if first_start.cancelled() else first_start.exception()
        if self._refused.done() or not isinstance(error, StartError):
            return
        if error.status == USAGE_STATUS:
            self._refused.set_exception(error)
            self._refused.exception()  # marks it as retrieved, since nobody may wait for it

    async def stop(self) -> None:
        """Stop all processes, the newest first, even if one of them cannot be stopped."""
        for process in self._processes.values():
            # Before any is stopped: newer processes wait for answers of older ones.
            process.resume()
        for name in reversed(self._processes):
            try:
                await self._stop(name)
            except Exception:
                logger.exception("%s could not be stopped in order", name)
        self._processes.clear()
        self._tasks.clear()
        try:
            self._state_path.unlink(missing_ok=True)
        except OSError as error:
            logger.error("%s cannot be removed: %s", self._state_path, error.strerror)

    async def _stop(self, name: str) -> None:
        process, task = self._processes[name], self._tasks[name]
        try:
            await process.stop()
            # The last lines of its output are still being read.
            await asyncio.wait((task,), timeout=STOP_TIMEOUT_S)
        finally:
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            process.close()
        if isinstance(result, Exception):
            raise result

    def _write_state(self) -> None:
        state = {
            name: {
                "pid": process.pid,
                "ready": process.is_ready and not process.status.startswith("not ready"),
                "status": process.status,
                "restarts": process.restarts,
                "argv": list(process.spec.argv),
            }
            for name, process in self._processes.items()
        }
        aside = self._state_path.with_suffix(".tmp")
        try:
            aside.write_text(json.dumps(state, indent=1), encoding="utf-8")
            aside.replace(self._state_path)
        except OSError as error:
            self._trouble.failed(error)
        else:
            self._trouble.succeeded()
