"""The states of connectors and tasks, by the names that Kafka Connect gives them."""

from __future__ import annotations

import enum
from typing import NamedTuple


class State(enum.Enum):
    """What a connector or a task is doing."""

    UNASSIGNED = "UNASSIGNED"  # no worker runs it
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"  # of connectors only: it has no tasks
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class TargetState(enum.Enum):
    """What a user wants a connector to do."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class TaskId(NamedTuple):
    """A task of a connector; tasks are numbered from 0."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class Status(NamedTuple):
    """The state of a connector or a task, where it is, and why it has failed."""

    state: State
    worker_id: str  # HOST:PORT of its REST interface
    trace: str = ""
    generation: int = 0  # of the workers' group
    version: str | None = None  # of the plugin (KIP-891)
