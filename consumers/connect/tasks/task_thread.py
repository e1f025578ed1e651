"""The thread of a task: how it begins, pauses, stops and fails, whatever its loop does.

An exception of a plugin, of a converter or of a client ends the task, never the worker. It is
logged, and the task is FAILED with the traceback in its status until somebody restarts it. A task
that does not stop in time is left alone: what it does from then on changes no status.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Protocol

from consumers.connect.errors.dead_letters import trace_of
from consumers.connect.observability.measures import Measure
from consumers.connect.storage.states import State, TargetState, TaskId
from waylog.process.threads import start_thread

logger = logging.getLogger(__name__)


class TaskListener(Protocol):
    """Is told about tasks, in their threads."""

    def task_is(self, task: TaskId, state: State, trace: str = "") -> None:
        """Take note of a task's state."""

    def topic_is_used(self, connector: str, topic: str) -> None:
        """Take note that a connector uses a topic."""


class TaskThread(ABC):
    """A task. `stop`, `cancel`, `set_target` and `wait` may be called in any thread."""

    def __init__(self, task: TaskId, target: TargetState, listener: TaskListener) -> None:
        self.task_id: Final = task
        self._listener: Final = listener
        self._condition: Final = threading.Condition()
        self._target = target
        self._stopping: Final = threading.Event()
        self._cancelled = False
        self._ended: Final = threading.Event()
        self._topics: Final[set[str]] = set()

    def start(self) -> None:
        """Start the thread."""
        start_thread(self._run, f"task-thread-{self.task_id}", may_end=lambda: True)

    def stop(self) -> None:
        """Have the task end after what it is doing."""
        with self._condition:
            self._stopping.set()
            self._condition.notify_all()

    def cancel(self) -> None:
        """Do not wait for the task any longer; its status does not change any more."""
        with self._condition:
            self._cancelled = True
            self._stopping.set()
            self._condition.notify_all()

    def set_target(self, target: TargetState) -> None:
        """Have the task pause, or go on."""
        with self._condition:
            self._target = target
            self._condition.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the task has ended; return whether it has."""
        return self._ended.wait(timeout_s)

    @property
    def has_ended(self) -> bool:
        """Tell whether the task has ended, in whatever way."""
        return self._ended.is_set()

    @abstractmethod
    def run_task(self) -> None:
        """Run until the task is to stop; raises what makes it FAILED."""

    @abstractmethod
    def close(self) -> None:
        """Give up everything that the task holds; called in its thread, at the end."""

    def measures(self) -> Iterable[Measure]:
        """Return what the task has measured so far; may be called in any thread."""
        return ()

    @property
    def is_stopping(self) -> bool:
        """Tell whether the task is to end."""
        return self._stopping.is_set()

    @property
    def is_cancelled(self) -> bool:
        """Tell whether nobody waits for the task any more."""
        return self._cancelled

    @property
    def is_paused(self) -> bool:
        """Tell whether the task is to pause."""
        return self._target is not TargetState.STARTED

    def report(self, state: State, trace: str = "") -> None:
        """Tell the listener the task's state."""
        with self._condition:
            if not self._cancelled:
                self._listener.task_is(self.task_id, state, trace)

    def report_topic(self, topic: str) -> None:
        """Tell the listener about a topic that the task uses."""
        if topic not in self._topics:
            self._topics.add(topic)
            self._listener.topic_is_used(self.task_id.connector, topic)

    def forget_topics(self) -> None:
        """Tell the listener again about topics."""
        self._topics.clear()

    def wait_until_resumed(self) -> bool:
        """Wait while the task is to pause; return False if it is to end."""
        with self._condition:
            self._condition.wait_for(lambda: self.is_stopping or not self.is_paused)
        return not self.is_stopping

    def _run(self) -> None:
        try:
            failure = self._run_inside()
            if failure is not None:
                self.report(State.FAILED, trace_of(failure))
            else:
                self.report(State.UNASSIGNED)
        finally:
            self._ended.set()

    def _run_inside(self) -> BaseException | None:
        """Run the task to its end; return why it has failed."""
        failure: BaseException | None = None
        try:
            if self.is_paused:
                self.report(State.PAUSED)
            if self.wait_until_resumed():
                self.run_task()
        except BaseException as error:  # plugins may raise SystemExit
            failure = error
            if self.is_stopping:
                logger.warning("task %s failed while it stopped", self.task_id, exc_info=error)
            else:
                logger.error(
                    "task %s has failed and does not go on until it is restarted",
                    self.task_id,
                    exc_info=error,
                )
        try:
            self.close()
        except BaseException as error:
            logger.warning("task %s was not closed in order", self.task_id, exc_info=error)
        # An error during a stop that was asked for is no failure, as in Kafka.
        return None if self.is_stopping else failure
