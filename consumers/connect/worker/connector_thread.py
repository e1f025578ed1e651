"""The thread of a connector: all that the worker asks of the connector's object happens in it.

Python's methods of a connector may block, or raise; neither stops the worker.
"""

from __future__ import annotations

import enum
import logging
import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.errors.dead_letters import trace_of
from consumers.connect.plugins.connector import Connector
from consumers.connect.plugins.source_task import OffsetReader
from consumers.connect.storage.states import State, TargetState
from consumers.connect.worker.in_thread import running_future, settle
from waylog.process.threads import start_thread

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ConnectorListener(Protocol):
    """Is told about connectors, in their threads."""

    def connector_is(self, connector: str, state: State, trace: str = "") -> None:
        """Take note of a connector's state."""

    def work_has_changed(self, connector: str) -> None:
        """Have the connector's work divided anew."""


class _Stage(enum.Enum):
    INITIAL = "INITIAL"
    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


_SUSPENDED: Final = {
    TargetState.PAUSED: (_Stage.PAUSED, State.PAUSED),
    TargetState.STOPPED: (_Stage.STOPPED, State.STOPPED),
}


class ConnectorThread:
    """A connector. Its methods may be called in any thread, and do not wait."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Connector],
        properties: Mapping[str, str],
        offset_reader: OffsetReader | None,
        listener: ConnectorListener,
    ) -> None:
        """`properties` have their variables replaced; `make` returns the connector's object."""
        self._name: Final = name
        self._make: Final = make
        self._properties: Final = properties
        self._listener: Final = listener
        self._jobs: Final[queue.SimpleQueue[Callable[[], None] | None]] = queue.SimpleQueue()
        self._connector: Connector | None = None
        self._stage = _Stage.INITIAL
        self._cancelled = False
        self._ended: Final[Future[None]] = running_future()
        self.offset_reader: Final = offset_reader
        start_thread(self._run, f"connector-thread-{name}", may_end=lambda: True)

    # ---- ConnectorContext ----

    def request_task_reconfiguration(self) -> None:
        """See ConnectorContext."""
        self._listener.work_has_changed(self._name)

    def raise_error(self, error: Exception) -> None:
        """See ConnectorContext."""
        self._jobs.put(lambda: self._fail(error))

    # ---- for the worker ----

    def move(self, target: TargetState) -> Future[None]:
        """Bring the connector into a state; the future raises ConnectException."""
        return self._submit(lambda: self._move(target))

    def divide(self, max_tasks: int) -> Future[Sequence[Mapping[str, str]] | None]:
        """Have the connector divide its work; None if it does not run."""
        return self._submit(lambda: self._divide(max_tasks))

    def fail(self, error: Exception) -> Future[None]:
        """Make the connector FAILED."""
        return self._submit(lambda: self._fail(error))

    def stop(self) -> Future[None]:
        """End the connector; the future is done when its thread has ended."""
        self._jobs.put(None)
        return self._ended

    def cancel(self) -> None:
        """Do not wait for the connector any longer; its state does not change any more."""
        self._listener.connector_is(self._name, State.UNASSIGNED)
        self._cancelled = True

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = running_future()

        if self._ended.done():
            future.set_exception(ConnectException(f"Connector {self._name} has ended"))
        else:
            self._jobs.put(lambda: settle(future, work))
        return future

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
            self._shut_down()
        finally:
            self._ended.set_result(None)

    def _report(self, state: State, trace: str = "") -> None:
        if not self._cancelled:
            self._listener.connector_is(self._name, state, trace)

    def _move(self, target: TargetState) -> None:
        if self._stage is _Stage.FAILED and target is not TargetState.STOPPED:
            raise ConnectException(
                f"Cannot transition connector {self._name} to {target.value} since it has failed"
            )
        try:
            if target is TargetState.STARTED:
                self._start()
            else:
                self._suspend(target)
        except BaseException as error:
            self._fail(error)
            raise ConnectException(
                f"Failed to transition connector {self._name} to state {target.value}"
            ) from error

    def _start(self) -> None:
        if self._stage is _Stage.STARTED:
            return
        if self._connector is None:
            self._connector = self._make()
            self._connector.context = self
        self._connector.start(self._properties)
        self._stage = _Stage.STARTED
        self._report(State.RUNNING)

    def _suspend(self, target: TargetState) -> None:
        stage, state = _SUSPENDED[target]
        if self._stage is stage:
            return
        if self._stage is _Stage.STARTED and self._connector is not None:
            try:
                self._connector.stop()
            except Exception:
                # One that is to stop has stopped, whatever it says.
                if target is not TargetState.STOPPED:
                    raise
                logger.exception("connector %s has failed while it stopped", self._name)
        self._stage = stage
        self._report(state)

    def _divide(self, max_tasks: int) -> Sequence[Mapping[str, str]] | None:
        if self._stage is not _Stage.STARTED or self._connector is None:
            return None
        try:
            return [dict(each) for each in self._connector.task_configs(max_tasks)]
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        if self._stage is _Stage.FAILED:
            return  # the first cause stays
        logger.error("connector %s has failed", self._name, exc_info=error)
        self._stage = _Stage.FAILED
        self._report(State.FAILED, trace_of(error))

    def _shut_down(self) -> None:
        try:
            if self._stage is _Stage.STARTED and self._connector is not None:
                self._connector.stop()
        except BaseException as error:
            self._fail(error)
        else:
            self._report(State.UNASSIGNED)
