"""The configurations of connectors and tasks, and what users want connectors to do.

`ClusterConfig` is the state, `Change` what changes it. A standalone worker applies changes at once;
a store in a topic will write them there, and apply what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from consumers.connect.storage.states import TargetState, TaskId

Properties = Mapping[str, str]


class PutConnector(msgspec.Struct, frozen=True):
    """A connector is created, or has another configuration."""

    connector: str
    properties: Properties  # as they were sent, with variables
    target: TargetState | None = None  # None: as it is; STARTED for a new connector


class RemoveConnector(msgspec.Struct, frozen=True):
    """A connector is deleted, with its tasks."""

    connector: str


class PutTasks(msgspec.Struct, frozen=True):
    """The work of a connector is divided anew."""

    connector: str
    tasks: Sequence[Properties]


class RemoveTasks(msgspec.Struct, frozen=True):
    """A connector has no tasks any more."""

    connector: str


class PutTarget(msgspec.Struct, frozen=True):
    """A user wants a connector to run, to pause or to stop."""

    connector: str
    target: TargetState


class PutFencing(msgspec.Struct, frozen=True):
    """The former tasks of an exactly-once source cannot write any more (KIP-618)."""

    connector: str
    tasks: int  # how many there are now


Change = PutConnector | RemoveConnector | PutTasks | RemoveTasks | PutTarget | PutFencing


class _Connector(msgspec.Struct):
    properties: Properties
    target: TargetState = TargetState.STARTED
    tasks: tuple[Properties, ...] = ()
    #: The connector's properties from which the tasks were made; None: there are none yet.
    applied: Properties | None = None
    #: Whether former tasks may still write, if it is an exactly-once source.
    is_fencing_due: bool = False


class ClusterConfig:
    """What has been configured, by the changes so far."""

    def __init__(self) -> None:
        self._connectors: Final[dict[str, _Connector]] = {}
        #: It outlives a connector that is deleted, since its tasks may.
        self._fenced: Final[dict[str, int]] = {}

    def __contains__(self, connector: object) -> bool:
        return connector in self._connectors

    def connectors(self) -> list[str]:
        """Return the names of all connectors."""
        return list(self._connectors)

    def properties(self, connector: str) -> Properties:
        """Return a connector's configuration with its variables; raises KeyError."""
        return self._connectors[connector].properties

    def target(self, connector: str) -> TargetState:
        """Return what a user wants a connector to do; raises KeyError."""
        return self._connectors[connector].target

    def tasks(self, connector: str) -> list[TaskId]:
        """Return the tasks of a connector; none if it does not exist."""
        found = self._connectors.get(connector)
        return [TaskId(connector, number) for number in range(len(found.tasks))] if found else []

    def task_properties(self, task: TaskId) -> Properties | None:
        """Return a task's properties with their variables, None if there is no such task."""
        found = self._connectors.get(task.connector)
        if found is None or not 0 <= task.task < len(found.tasks):
            return None
        return found.tasks[task.task]

    def is_fencing_due(self, connector: str) -> bool:
        """Tell whether tasks were made since former ones were fenced."""
        found = self._connectors.get(connector)
        return found is not None and found.is_fencing_due

    def fenced_tasks(self, connector: str) -> int | None:
        """Return how many tasks there were when tasks were fenced last; None: never."""
        return self._fenced.get(connector)

    def has_tasks(self, connector: str, tasks: Sequence[Properties]) -> bool:
        """Return whether a connector has these tasks, made from its present configuration."""
        found = self._connectors.get(connector)
        return (
            found is not None
            and len(found.tasks) == len(tasks)
            and all(dict(one) == dict(two) for one, two in zip(found.tasks, tasks, strict=True))
            and found.applied is not None
            and dict(found.applied) == dict(found.properties)
        )

    def apply(self, change: Change) -> None:
        """Change the state; changes of connectors that do not exist have no effect."""
        if isinstance(change, PutConnector):
            former = self._connectors.get(change.connector)
            target = change.target or (former.target if former else TargetState.STARTED)
            tasks, applied = (former.tasks, former.applied) if former else ((), None)
            self._connectors[change.connector] = _Connector(
                dict(change.properties), target, tasks, applied
            )
            return
        found = self._connectors.get(change.connector)
        if isinstance(change, PutFencing):
            self._fenced[change.connector] = change.tasks
            if found is not None:
                found.is_fencing_due = False
            return
        if found is None:
            return
        match change:
            case RemoveConnector():
                del self._connectors[change.connector]
            case PutTasks():
                found.tasks = tuple(dict(each) for each in change.tasks)
                found.applied = found.properties
                found.is_fencing_due = bool(found.tasks)
            case RemoveTasks():
                found.tasks = ()
                found.applied = None
            case PutTarget():
                found.target = change.target


class ConfigurationStore(Protocol):
    """Keeps configurations. Methods are called on the worker's event loop."""

    @property
    def config(self) -> ClusterConfig:
        """What has been configured."""

    async def write(self, change: Change) -> None:
        """Store a change; when it returns, `config` has it. Raises ConnectException."""


class MemoryConfigurationStore:
    """Keeps configurations until the process ends, as a standalone worker of Kafka does."""

    def __init__(self) -> None:
        self.config: Final = ClusterConfig()

    async def write(self, change: Change) -> None:
        """Apply the change."""
        self.config.apply(change)
