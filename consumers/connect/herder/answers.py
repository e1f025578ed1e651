"""What the REST interface answers; members have the names that Kafka Connect gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from consumers.connect.storage.states import Status, TaskId


class TaskPlace(msgspec.Struct, frozen=True):
    """A task's id in answers."""

    connector: str
    task: int

    @staticmethod
    def of(task: TaskId) -> TaskPlace:
        """Return the id of a task."""
        return TaskPlace(task.connector, task.task)


class ConnectorInfo(msgspec.Struct, frozen=True):
    """A connector: GET /connectors/NAME."""

    name: str
    config: Mapping[str, str]
    tasks: Sequence[TaskPlace]
    type: str  # source, sink, unknown


class TaskInfo(msgspec.Struct, frozen=True):
    """A task with its configuration: GET /connectors/NAME/tasks."""

    id: TaskPlace
    config: Mapping[str, str]


class ConnectorState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a connector."""

    state: str
    worker_id: str
    trace: str = ""
    version: str | None = None

    @staticmethod
    def of(status: Status) -> ConnectorState:
        """Return a status as answers have it."""
        return ConnectorState(status.state.value, status.worker_id, status.trace, status.version)


class TaskState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a task: GET /connectors/NAME/tasks/N/status."""

    id: int
    state: str
    worker_id: str
    trace: str = ""
    version: str | None = None

    @staticmethod
    def of(task: TaskId, status: Status) -> TaskState:
        """Return a status as answers have it."""
        return TaskState(
            task.task, status.state.value, status.worker_id, status.trace, status.version
        )


class ConnectorStateInfo(msgspec.Struct, frozen=True):
    """A connector's state with its tasks': GET /connectors/NAME/status."""

    name: str
    connector: ConnectorState
    tasks: Sequence[TaskState]
    type: str


class ActiveTopics(msgspec.Struct, frozen=True):
    """The topics that a connector has used: GET /connectors/NAME/topics (KIP-558)."""

    topics: Sequence[str]


class ConnectorOffset(msgspec.Struct, frozen=True):
    """An offset of a source or sink connector (KIP-875)."""

    partition: Mapping[str, Any] | None
    offset: Mapping[str, Any] | None


class ConnectorOffsets(msgspec.Struct, frozen=True):
    """The offsets of a connector: GET /connectors/NAME/offsets."""

    offsets: Sequence[ConnectorOffset]


class Message(msgspec.Struct, frozen=True):
    """A sentence for people."""

    message: str


class ErrorMessage(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    error_code: int
    message: str


class PluginInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A class that configurations may name: GET /connector-plugins."""

    class_: str = msgspec.field(name="class")
    type: str
    version: str = "undefined"


class Created(msgspec.Struct, frozen=True):
    """A connector's configuration was stored."""

    is_new: bool
    info: ConnectorInfo
