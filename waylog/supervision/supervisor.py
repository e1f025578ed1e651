"""Starts processes, waits until they are ready, restarts those that die, stops all of them.

A process reports that it is ready with the protocol of sd_notify(3) (`waylog.process.notify`). Its
output goes to a rotating file. A process that dies, or cannot be started, is started again after a
pause that doubles while it keeps dying; when the supervisor dies, its processes die too (Linux's
parent-death signal). A process that ends with exit status 2 before it was ready for the first time
has a wrong command line: it is not started again, and `wait_ready` raises the reason. One that
hangs, also before it is ready (`waylog.supervision.progress`), is aborted and started again.

An unexpected error of the supervision itself is logged with its traceback and ends nothing: the
process is ended, if it still runs, and started again. `wait_refused` tells if even that fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Final

from waylog.process.log_throttle import LogThrottle
from waylog.process.storage_trouble import StorageTrouble
from waylog.supervision.process_spec import (
    STOP_TIMEOUT_S,
    USAGE_STATUS,
    ProcessSpec,
    StartError,
    SupervisionError,
)
from waylog.supervision.supervised_process import SupervisedProcess, is_cancelled

logger = logging.getLogger(__name__)

#: Seconds after which a state that could not be written is written again.
_STATE_AGAIN_S: Final = 1.0


class Supervisor:
    """Keeps a set of processes alive; `processes.json` in `state_folder` lists them."""

    def __init__(self, state_folder: Path, log_folder: Path) -> None:
        self._state_path = state_folder / "processes.json"
        self._log_folder = log_folder
        self._processes: dict[str, SupervisedProcess] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_stopping = False
        self._writing_again: asyncio.TimerHandle | None = None
        self._said_of_state = LogThrottle()
        state_folder.mkdir(parents=True, exist_ok=True)
        self._trouble = StorageTrouble(state_folder, logger)

    def start(self, spec: ProcessSpec) -> None:
        """Start a process and keep it alive; `wait_ready` waits until it serves.

        Raises StartError if the supervisor lacks a resource that it needs for it.
        """
        try:
            process = SupervisedProcess(
                spec, self._log_folder / f"{spec.name}.log", self._write_state
            )
        except OSError as error:
            raise StartError(f"{spec.name} cannot be started: {error}") from error
        self._processes[spec.name] = process
        process.first_start.add_done_callback(self._started)
        task = asyncio.create_task(process.run(), name=spec.name)
        self._tasks[spec.name] = task
        task.add_done_callback(self._ended)

    async def wait_ready(self, name: str) -> None:
        """Wait until the process has been ready for the first time.

        Raises StartError if it cannot be started or is not ready in time. The process itself may
        extend that time (EXTEND_TIMEOUT_USEC).
        """
        process = self._processes[name]
        loop = asyncio.get_running_loop()
        ready_by = loop.time() + process.spec.ready_timeout_s
        while True:
            try:
                async with asyncio.timeout_at(ready_by):
                    await asyncio.shield(process.first_start)
            except TimeoutError:
                if process.extended_to <= ready_by:
                    raise process.late() from None
                ready_by = process.extended_to
            else:
                return

    async def wait_refused(self) -> None:
        """Wait until a process cannot be kept alive, maybe for ever.

        Raises StartError if its first start ends with a usage error, and SupervisionError if its
        supervision has ended by an error.
        """
        await asyncio.shield(self._refused)

    def _started(self, first_start: asyncio.Future[None]) -> None:
        error = None if first_start.cancelled() else first_start.exception()
        if isinstance(error, StartError) and error.status == USAGE_STATUS:
            self._refuse(error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._is_stopping:
            return  # `_stop` raises its error
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return  # `_started` has heard of the usage error
        reason = "it was cancelled" if error is None else f"{type(error).__name__}: {error}"
        failure = SupervisionError(f"{task.get_name()} is no longer supervised: {reason}")
        failure.__cause__ = error
        self._refuse(failure)
        logger.critical("%s", failure, exc_info=error)

    def _refuse(self, error: Exception) -> None:
        if not self._refused.done():
            self._refused.set_exception(error)
            self._refused.exception()  # marks it as retrieved, since nobody may wait for it

    async def stop(self) -> None:
        """Stop all processes, the newest first, even if one of them cannot be stopped."""
        self._is_stopping = True
        for process in self._processes.values():
            # Before any is stopped: newer processes wait for answers of older ones.
            with contextlib.suppress(OSError):
                process.resume()
        for name in reversed(self._processes):
            try:
                await self._stop(name)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                # The others are stopped even if nothing can be logged.
                with contextlib.suppress(Exception):
                    logger.exception("%s could not be stopped in order", name)
        self._processes.clear()
        self._tasks.clear()
        if self._writing_again is not None:
            self._writing_again.cancel()
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
        """Write `processes.json`; what cannot be written is logged, and written a little later."""
        if self._writing_again is not None:
            self._writing_again.cancel()
            self._writing_again = None
        try:
            self._try_to_write_state()
        except Exception as error:
            loop = asyncio.get_running_loop()
            self._writing_again = loop.call_later(_STATE_AGAIN_S, self._write_state)
            if isinstance(error, OSError):
                self._trouble.failed(error)
            elif self._said_of_state.count(loop.time()) is not None:
                logger.exception("%s could not be written", self._state_path)
        else:
            self._trouble.succeeded()

    def _try_to_write_state(self) -> None:
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
        aside.write_text(json.dumps(state, indent=1), encoding="utf-8")
        aside.replace(self._state_path)
