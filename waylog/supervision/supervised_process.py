"""One process that is kept alive: started, watched, and started again when it ends.

An unexpected error of the supervision itself is logged with its traceback and ends nothing: the
process is ended, if it still runs, and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from waylog.os_errors import describe_os_error
from waylog.process.child_process import ChildProcess
from waylog.process.log_throttle import LogThrottle, since_last_line
from waylog.supervision.notify_socket import NotifySocket
from waylog.supervision.output_log import OutputLog
from waylog.supervision.process_spec import (
    FAILED_STATUS,
    USAGE_STATUS,
    ProcessSpec,
    StartError,
)
from waylog.supervision.progress import Progress, extension_s

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_FIRST_S: Final = 0.1
PAUSE_LONGEST_S: Final = 5.0
#: A process that lived this long is healthy: after its next death the first pause applies again.
HEALTHY_AFTER_S: Final = 10.0
KILL_TIMEOUT_S: Final = 5.0
#: Seconds between two looks at whether a process reports progress.
_GUARD_S: Final = 1.0
#: Seconds for an aborted process to print where its threads are.
_ABORT_S: Final = 2.0
#: Seconds for which a failing first start is repeated before `first_start` gets its error.
FIRST_START_S: Final = 2.0
#: A process that keeps ending for the same reason is reported once in this time.
SAY_AGAIN_S: Final = 60.0
_LINE_BYTES: Final = 64 * 1024


class SupervisedProcess:
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
        self._pause_s = PAUSE_FIRST_S
        self._begun_at = time.monotonic()
        self._progress = Progress(spec.ready_timeout_s, spec.watchdog_s)
        #: The time of the event loop to which it has extended its start.
        self.extended_to = 0.0
        # A log throttle for each part of its supervision.
        self._said_of: defaultdict[str, LogThrottle] = defaultdict(LogThrottle)
        try:
            self._notify = NotifySocket(self._heard)
        except OSError:
            self._log.close()
            raise

    async def run(self) -> None:
        """Start it, and start it again whenever it ends, until `stop` or a usage error."""
        self._begun_at = time.monotonic()
        while not self._stopping.is_set():
            if not await self._survive(self._round(), True):
                return
            await self._survive(self._pause(), None)

    async def _round(self) -> bool:
        """Run it once, and tell of its end; return False if it is not to be started again."""
        started = time.monotonic()
        status, what = await self._live()
        if self._stopping.is_set():
            return False
        lived_s = time.monotonic() - started
        # A death by signal cannot be the fault of its command line.
        if not self.first_start.done() and status >= 0:
            reason = f"{self.spec.name} cannot start: {what}{self._printed(self._last_line())}"
            if status == USAGE_STATUS:
                self.first_start.set_exception(StartError(reason, status))
                self._changed()
                return False
            if time.monotonic() - self._begun_at > FIRST_START_S:
                self.first_start.set_exception(StartError(reason, status or FAILED_STATUS))
        if lived_s > HEALTHY_AFTER_S:
            self._pause_s = PAUSE_FIRST_S
        self.restarts += 1
        # First, so that the state is true even if the next step fails.
        self._changed()
        self._tell(what, lived_s, self._pause_s)
        return True

    async def _pause(self) -> None:
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, PAUSE_LONGEST_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _survive(self, step: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Return what a step of the supervision returns, or `otherwise` if it fails."""
        try:
            return await step
        except (Exception, asyncio.CancelledError) as error:
            self._failed("its supervision", error)
        # Whatever fails at once must not take all of the event loop's time.
        await asyncio.sleep(PAUSE_FIRST_S)
        return otherwise

    def _failed(self, what: str, error: BaseException) -> None:
        """Log an unexpected error now and then; raises it if somebody has cancelled this task."""
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise error
        unsaid = self._said_of[what].count(time.monotonic())
        if unsaid is not None:
            others = since_last_line(unsaid)
            logger.error("%s: %s failed%s", self.spec.name, what, others, exc_info=error)

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
            return FAILED_STATUS, f"could not be started: {describe_os_error(error)}"
        except subprocess.SubprocessError as error:
            return FAILED_STATUS, f"could not be started: {error}"
        except (Exception, asyncio.CancelledError) as error:
            self._failed("its supervision", error)
            return FAILED_STATUS, "could not be supervised"
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
                # What the last run has left unread is not said by the next one.
                self._notify.read()
                child = ChildProcess(self.spec.argv, self._environment(), writing)
            finally:
                os.close(writing)
            return await self._watch(child, output)
        finally:
            transport.close()
            self.pid = None
            self.is_ready = False

    def _environment(self) -> dict[str, str]:
        environment = os.environ | self.spec.environment
        # It names this process if systemd watches that; a child would take nobody to watch it.
        environment.pop("WATCHDOG_PID", None)
        return environment | {
            "NOTIFY_SOCKET": self._notify.address,
            "WATCHDOG_USEC": str(round(self.spec.watchdog_s * 1e6)),
            # A Python that is aborted before it has set up anything says where it hangs, too.
            "PYTHONFAULTHANDLER": "1",
        }

    async def _watch(self, child: ChildProcess, output: asyncio.StreamReader) -> int:
        helpers: list[asyncio.Task[None]] = []
        try:
            self._child = child
            self.pid = child.pid
            self._progress.begin()
            for work, what in (
                (self._copy_output(output), "output"),
                (self._guard(child), "guard"),
            ):
                helper = asyncio.create_task(work, name=f"{self.spec.name} {what}")
                helper.add_done_callback(partial(self._helper_ended, child))
                helpers.append(helper)
            self._changed()
            if self._stopping.is_set():  # set while the process was being started
                child.terminate()
            status = await child.wait()
            self._notify.read()  # what it has said before it ended
            return status
        finally:
            # Its own children (a JVM) must not run on beside the next one, and nor may itself, if
            # watching it has failed.
            child.kill_group()
            await self._await_end(child)
            for helper in helpers[1:]:
                helper.cancel()
            if helpers:
                # The last lines of its output are still being read.
                await asyncio.wait(helpers[:1], timeout=1.0)
                helpers[0].cancel()

    def _helper_ended(self, child: ChildProcess, helper: asyncio.Task[None]) -> None:
        """Kill a process that still runs if nobody copies its output or watches it any more."""
        error = None if helper.cancelled() else helper.exception()
        if child.has_ended or (error is None and not helper.cancelled()):
            return
        child.kill_group()
        logger.error("%s has failed; the process is killed", helper.get_name(), exc_info=error)

    async def _await_end(self, child: ChildProcess) -> None:
        """Wait until a killed process has ended; its port is taken until then."""
        if child.has_ended:
            return
        try:
            await asyncio.wait_for(child.wait(), KILL_TIMEOUT_S)
        except TimeoutError:
            logger.error("%s, process %d, cannot be killed", self.spec.name, child.pid)

    async def _guard(self, child: ChildProcess) -> None:
        """Abort a process that hangs."""
        while not child.has_ended:
            try:
                fault = await self._await_hang()
                if self._stopping.is_set():
                    return
                # First, so that it happens even if nothing can be logged.
                child.abort()
                logger.error("%s %s and is aborted", self.spec.name, fault)
                await asyncio.sleep(_ABORT_S)
                child.kill_group()
                return
            except (Exception, asyncio.CancelledError) as error:
                self._failed("its watchdog", error)
            await asyncio.sleep(_GUARD_S)

    async def _await_hang(self) -> str:
        """Wait until the process has said nothing for too long; return what it fails to do."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        while (fault := self._progress.fault()) is None:
            await asyncio.sleep(_GUARD_S)
            now = loop.time()
            # If this process was stopped, or the machine asleep, the child may have been too.
            self._progress.passed(min(now - before, 2 * _GUARD_S))
            before = now
        return fault

    async def _copy_output(self, output: asyncio.StreamReader) -> None:
        """Copy lines until the process closes its output; a line that fails is left out."""
        # A pipe that cannot be read stays so; it is closed then.
        while output.exception() is None:
            try:
                try:
                    line = await output.readline()
                except ValueError:  # longer than _LINE_BYTES: what was read is dropped
                    continue
                if not line:
                    return
                text = line.decode("utf-8", "replace").rstrip("\n")
                self._last_lines = [*self._last_lines[-19:], text]
                self._log.write(text)
            except (Exception, asyncio.CancelledError) as error:
                self._failed("copying its output", error)

    def _said(self, status: str) -> None:
        if status == self.status:
            return
        if status.startswith("not ready"):
            logger.error("%s is %s", self.spec.name, status)
        elif self.status.startswith("not ready"):
            logger.warning("%s is %s again", self.spec.name, status)
        self.status = status
        self._changed()

    def _heard(self, message: bytes) -> None:
        if self.pid is None:
            # It has ended since: what it says of itself is no longer so.
            return
        lines = message.splitlines()
        self._progress.heard(lines)
        more_s = extension_s(lines)
        if more_s is not None:
            now = asyncio.get_running_loop().time()
            self.extended_to = max(self.extended_to, now + more_s)
        for line in lines:
            if line.startswith(b"STATUS="):
                self._said(line.removeprefix(b"STATUS=").decode("utf-8", "replace"))
        if b"READY=1" in lines:
            self.is_ready = True
            if not self.first_start.done():
                self.first_start.set_result(None)
            self._changed()


def is_cancelled() -> bool:
    """Tell whether somebody has cancelled the present task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
