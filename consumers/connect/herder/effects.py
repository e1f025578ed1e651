"""What the herder has others do: its operations yield these, and are sent the results.

An operation is a generator, so that it reads as one sequence of steps, and knows neither threads
nor sockets. Who carries an effect out throws ConnectException into the operation if it fails.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from consumers.connect.plugins.sink_task import TopicPartition
from consumers.connect.storage.configurations import Change, Properties
from consumers.connect.storage.states import TargetState, TaskId


class Validate(msgspec.Struct, frozen=True):
    """Validate a configuration; the result is a ConfigInfos."""

    properties: Mapping[str, str | None]


class Write(msgspec.Struct, frozen=True):
    """Store a change of configurations."""

    change: Change


class StartConnector(msgspec.Struct, frozen=True):
    """Make a connector's object and bring it into a state."""

    connector: str
    properties: Properties  # with variables
    target: TargetState


class StopConnector(msgspec.Struct, frozen=True):
    """End a connector's object, if there is one, and wait for that."""

    connector: str


class MoveConnector(msgspec.Struct, frozen=True):
    """Bring a connector's object into a state; the result says whether it was there."""

    connector: str
    target: TargetState


class DivideWork(msgspec.Struct, frozen=True):
    """Ask a connector for its tasks; the result is a list of properties, variables replaced.

    None: the connector does not run.
    """

    connector: str
    properties: Properties


class StartTask(msgspec.Struct, frozen=True):
    """Start a task; the result says whether it was made."""

    task: TaskId
    connector: Properties  # with variables, as those of the task
    properties: Properties
    target: TargetState


class StopTasks(msgspec.Struct, frozen=True):
    """End tasks and wait for that, up to a limit."""

    tasks: Sequence[TaskId]
    within_s: float | None = None  # None: as the worker's properties say


class MoveTasks(msgspec.Struct, frozen=True):
    """Have the tasks of a connector pause, or go on."""

    connector: str
    target: TargetState


class ReadOffsets(msgspec.Struct, frozen=True):
    """Read a connector's offsets; the result is a list of pairs of partition and offset."""

    connector: str
    properties: Properties


class AlterSourceOffsets(msgspec.Struct, frozen=True):
    """Have a connector check offsets, then store them; the result is what the connector returned.

    None: all are reset.
    """

    connector: str
    properties: Properties
    offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]] | None


class AlterSinkOffsets(msgspec.Struct, frozen=True):
    """The same for a sink connector's group."""

    connector: str
    properties: Properties
    offsets: Mapping[TopicPartition, int | None] | None


class PublishTasks(msgspec.Struct, frozen=True):
    """Store a connector's tasks, or have the leader of the workers store them."""

    connector: str
    tasks: Sequence[Properties]


class RequestRestart(msgspec.Struct, frozen=True):
    """Have all workers restart parts of a connector."""

    connector: str
    only_failed: bool
    include_tasks: bool


class FenceTasks(msgspec.Struct, frozen=True):
    """Have the leader of the workers fence the former tasks of an exactly-once source."""

    connector: str


class FenceProducers(msgspec.Struct, frozen=True):
    """Make sure that some tasks of a connector commit nothing more."""

    connector: str
    properties: Properties
    tasks: int  # those with numbers below it


class Refresh(msgspec.Struct, frozen=True):
    """Read what other workers have configured."""


Effect = (
    Validate
    | Write
    | StartConnector
    | StopConnector
    | MoveConnector
    | DivideWork
    | StartTask
    | StopTasks
    | MoveTasks
    | ReadOffsets
    | AlterSourceOffsets
    | AlterSinkOffsets
    | PublishTasks
    | RequestRestart
    | FenceTasks
    | FenceProducers
    | Refresh
)
T = TypeVar("T")
Operation = Generator[Effect, Any, T]
