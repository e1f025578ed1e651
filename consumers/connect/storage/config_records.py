"""The records of the topic of configurations, `config.storage.topic`, in Kafka Connect's form.

Keys are texts, values JSON without a schema. The tasks of a connector are a record each, and count
once a record `commit-NAME` says how many there are; so no reader sees half of a division.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from consumers.connect.storage.configurations import (
    Change,
    Properties,
    PutConnector,
    PutFencing,
    PutTarget,
    PutTasks,
    RemoveConnector,
    RemoveTasks,
)
from consumers.connect.storage.states import TargetState

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET: Final = "target-state-"
TASK_COUNT: Final = "tasks-fencing-"
RESTART: Final = "restart-connector-"
LOGGER: Final = "logger-cluster-"
SESSION_KEY: Final = "session-key"

_encode: Final = msgspec.json.Encoder().encode


class Record(NamedTuple):
    """A record to write; a value of None removes what the key names."""

    key: str
    value: bytes | None


class SessionKey(NamedTuple):
    """The key with which workers sign requests to each other (KIP-507)."""

    key: bytes
    algorithm: str
    created_ms: int  # since 1970-01-01 UTC


def connector_record(connector: str, properties: Properties) -> Record:
    """Return the record of a connector's configuration."""
    return Record(CONNECTOR + connector, _properties(properties))


def target_record(connector: str, target: TargetState) -> Record:
    """Return the record of what a connector is to do; old workers read `state` (KIP-875)."""
    old = TargetState.PAUSED if target is TargetState.STOPPED else target
    return Record(TARGET + connector, _encode({"state": old.value, "state.v2": target.value}))


def task_records(connector: str, tasks: Sequence[Properties]) -> list[Record]:
    """Return the records of tasks; they count with that of `commit_record`."""
    return [
        Record(f"{TASK}{connector}-{number}", _properties(each))
        for number, each in enumerate(tasks)
    ]


def commit_record(connector: str, count: int) -> Record:
    """Return the record that makes the tasks before it count."""
    return Record(COMMIT + connector, _encode({"tasks": count}))


def task_count_record(connector: str, count: int) -> Record:
    """Return the record of how many tasks of a source run, all of whose former ones are fenced.

    KIP-618 names the member `tasks`; Kafka's workers write and read another one.
    """
    return Record(TASK_COUNT + connector, _encode({"task-count": count}))


def session_key_record(key: SessionKey) -> Record:
    """Return the record of a session key."""
    value = {
        "key": base64.b64encode(key.key).decode(),
        "algorithm": key.algorithm,
        "creation-timestamp": key.created_ms,
    }
    return Record(SESSION_KEY, _encode(value))


def restart_record(connector: str, *, only_failed: bool, include_tasks: bool) -> Record:
    """Return the record that has all workers restart parts of a connector (KIP-745)."""
    value = {"include-tasks": include_tasks, "only-failed": only_failed}
    return Record(RESTART + connector, _encode(value))


def logger_record(namespace: str, level: str) -> Record:
    """Return the record that sets a level on all workers (KIP-976)."""
    return Record(LOGGER + namespace, _encode({"level": level}))


def steps_of(change: Change) -> list[list[Record]]:
    """Return the records of a change, in steps: each is written when those before are stored."""
    match change:
        case PutConnector():
            record = connector_record(change.connector, change.properties)
            if change.target is None:
                return [[record]]
            return [[target_record(change.connector, change.target), record]]
        case RemoveConnector():
            name = change.connector
            return [[Record(CONNECTOR + name, None), Record(TARGET + name, None)]]
        case PutTasks():
            tasks = task_records(change.connector, change.tasks)
            return [tasks, [commit_record(change.connector, len(tasks))]]
        case RemoveTasks():
            return [[commit_record(change.connector, 0)]]
        case PutFencing():
            return [[task_count_record(change.connector, change.tasks)]]
        case PutTarget():
            return [[target_record(change.connector, change.target)]]


def is_for_leaders(records: Sequence[Record]) -> bool:
    """Tell whether only the leader writes these, which other workers may write, too."""
    return not all(each.key.startswith((TARGET, LOGGER)) for each in records)


def _properties(properties: Mapping[str, str]) -> bytes:
    return _encode({"properties": dict(properties)})
