"""The records of the topic of states, `status.storage.topic`, in Kafka Connect's form."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.storage.config_records import Record
from consumers.connect.storage.states import State, Status, TaskId
from consumers.connect.storage.statuses import MemoryStatusStore
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_CONNECTOR: Final = "status-connector-"
_TASK: Final = "status-task-"
_TOPIC: Final = "status-topic-"
_BETWEEN: Final = ":connector-"
_encode: Final = msgspec.json.Encoder().encode


class TopicForgotten(NamedTuple):
    """A connector's topic was reset: tasks tell about it again."""

    connector: str


def connector_status_record(connector: str, status: Status | None) -> Record:
    """Return the record of a connector's state; None removes it."""
    return Record(_CONNECTOR + connector, None if status is None else _status(status))


def task_status_record(task: TaskId, status: Status | None) -> Record:
    """Return the record of a task's state; None removes it."""
    return Record(f"{_TASK}{task}", None if status is None else _status(status))


def topic_record(connector: str, topic: str, task: int, now_ms: int) -> Record:
    """Return the record that a connector uses a topic (KIP-558)."""
    members = {"name": topic, "connector": connector, "task": task, "discoverTimestamp": now_ms}
    return Record(f"{_TOPIC}{topic}{_BETWEEN}{connector}", _encode({"topic": members}))


def topic_reset_record(connector: str, topic: str) -> Record:
    """Return the record that forgets that."""
    return Record(f"{_TOPIC}{topic}{_BETWEEN}{connector}", None)


def may_write(status: Status, present: Status | None) -> bool:
    """Tell whether a state that a worker reports late may replace the present one."""
    return (
        present is None
        or present.worker_id == status.worker_id
        or present.generation <= status.generation
    )


class StatusTopic:
    """The states of all records so far."""

    def __init__(self) -> None:
        self.table: Final = MemoryStatusStore()

    def read(self, key: bytes | None, value: bytes | None) -> TopicForgotten | None:
        """Take a record."""
        try:
            return self._read((key or b"").decode(), value)
        except MALFORMED as error:
            logger.error("states: the record with key %r is left out: %s", key, error)
            return None

    def _read(self, key: str, value: bytes | None) -> TopicForgotten | None:
        if key.startswith(_CONNECTOR):
            connector = key.removeprefix(_CONNECTOR)
            if value is None:
                self.table.remove_states(connector)
            else:
                status = _parsed(value)
                # Kafka looks at tasks alone here.
                if not _ends_too_late(status, self.table.connector(connector)):
                    self.table.put_connector(connector, status)
        elif key.startswith(_TASK):
            self._read_task(key.removeprefix(_TASK), value)
        elif key.startswith(_TOPIC) and _BETWEEN in key:
            topic, _, connector = key.removeprefix(_TOPIC).partition(_BETWEEN)
            if value is None:
                self.table.remove_topic(connector, topic)
                return TopicForgotten(connector)
            self.table.put_topic(connector, topic)
        else:
            raise ValueError("the key is not one of Kafka Connect")
        return None

    def _read_task(self, name: str, value: bytes | None) -> None:
        connector, _, number = name.rpartition("-")
        task = TaskId(connector, int(number))
        if value is None:
            self.table.remove_task(task)
            return
        status = _parsed(value)
        if not _ends_too_late(status, self.table.task(task)):
            self.table.put_task(task, status)


def _ends_too_late(status: Status, present: Status | None) -> bool:
    """Tell whether a former worker has ended what another one runs already, not knowing that."""
    return (
        status.state is State.UNASSIGNED
        and present is not None
        and present.state is State.RUNNING
        and present.generation >= status.generation
        and present.worker_id != status.worker_id
    )


def _status(status: Status) -> bytes:
    return _encode(
        {
            "state": status.state.value,
            "trace": status.trace or None,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
        }
    )


def _parsed(value: bytes) -> Status:
    """Parse a state; raises MALFORMED."""
    members: Any = msgspec.json.decode(value)
    if not isinstance(members, dict):
        raise ValueError("the value is no JSON object")
    worker, generation = members.get("worker_id"), members.get("generation")
    trace, version = members.get("trace"), members.get("version")
    if not isinstance(worker, str) or not isinstance(generation, int):
        raise ValueError("a state has worker_id and generation")
    return Status(
        State(members.get("state")),
        worker,
        trace if isinstance(trace, str) else "",
        generation,
        version if isinstance(version, str) else None,
    )
