"""States in a topic: `status.storage.topic` (`StatusStore`).

What is asked is what has been read; what is put is written, and read back a little later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.storage import status_topic
from consumers.connect.storage.config_records import Record
from consumers.connect.storage.states import State, Status, TaskId
from waylog.kafka.topic_log import TopicLog, TopicRecord
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

#: What a worker reports at the end of its work, when another one may have begun.
_LATE: Final = frozenset((State.UNASSIGNED, State.FAILED))


class StatusTopicStore:
    """The topic's state on the event loop.

    `on_forgotten` gets connectors whose topics were reset.
    """

    def __init__(
        self, topic: str, loop: asyncio.AbstractEventLoop, on_forgotten: Callable[[str], None]
    ) -> None:
        self.topic: Final = topic
        self._loop: Final = loop
        self._on_forgotten: Final = on_forgotten
        self._state: Final = status_topic.StatusTopic()
        self._table: Final = self._state.table
        self._log: TopicLog | None = None
        self._failure: Final = RepeatedFailure()

    def use(self, log: TopicLog) -> None:
        """Write to a log; call it before anything is put."""
        self._log = log

    def handle(self, record: TopicRecord) -> None:
        """Take a record, in the log's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._take, record)

    def _take(self, record: TopicRecord) -> None:
        forgotten = self._state.read(record.key, record.value)
        if forgotten is not None:
            self._on_forgotten(forgotten.connector)

    # ---- StatusStore ----

    def put_connector(self, connector: str, status: Status) -> None:
        """See StatusStore."""
        if status.state in _LATE and not status_topic.may_write(
            status, self._table.connector(connector)
        ):
            return
        self._write(status_topic.connector_status_record(connector, status))

    def put_task(self, task: TaskId, status: Status) -> None:
        """See StatusStore."""
        if status.state in _LATE and not status_topic.may_write(status, self._table.task(task)):
            return
        self._write(status_topic.task_status_record(task, status))

    def remove_task(self, task: TaskId) -> None:
        """See StatusStore."""
        self._write(status_topic.task_status_record(task, None))

    def remove_connector(self, connector: str) -> None:
        """See StatusStore."""
        for task, _ in self.tasks(connector):
            self.remove_task(task)
        self._write(status_topic.connector_status_record(connector, None))
        self.remove_topics(connector)

    def connectors(self) -> list[str]:
        """See StatusStore."""
        return self._table.connectors()

    def connector(self, connector: str) -> Status | None:
        """See StatusStore."""
        return self._table.connector(connector)

    def task(self, task: TaskId) -> Status | None:
        """See StatusStore."""
        return self._table.task(task)

    def tasks(self, connector: str) -> list[tuple[TaskId, Status]]:
        """See StatusStore."""
        return self._table.tasks(connector)

    def put_topic(self, connector: str, topic: str, task: int = 0) -> None:
        """See StatusStore."""
        if topic not in self._table.topics(connector):
            now_ms = round(time.time() * 1000)
            self._write(status_topic.topic_record(connector, topic, task, now_ms))

    def topics(self, connector: str) -> list[str]:
        """See StatusStore."""
        return self._table.topics(connector)

    def remove_topics(self, connector: str) -> None:
        """See StatusStore."""
        for topic in self.topics(connector):
            self._write(status_topic.topic_reset_record(connector, topic))

    def _write(self, record: Record) -> None:
        assert self._log is not None
        try:
            written = self._log.write(self.topic, record.key.encode(), record.value)
        except ConnectException as error:
            self._not_written(error)
        else:
            written.add_done_callback(self._done)

    def _done(self, written: Future[None]) -> None:
        error = written.exception()
        if error is None:
            self._failure.succeeded()
        else:
            self._not_written(error)

    def _not_written(self, error: BaseException) -> None:
        if isinstance(error, Exception) and self._failure.is_new(error):
            logger.error("states are not written: %s", error)
