"""What the records of the topic of configurations say, read in their order (KIP-415, KIP-507).

A damaged record is left out with a line in the log, as Kafka does. After compaction an old
`commit-NAME` may find some of its tasks gone: then the connector counts as one without tasks, until
a complete set comes; its worker divides the work anew.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from consumers.connect.storage import config_records
from consumers.connect.storage.config_records import SessionKey
from consumers.connect.storage.configurations import (
    ClusterConfig,
    PutConnector,
    PutFencing,
    PutTarget,
    PutTasks,
    RemoveConnector,
    RemoveTasks,
)
from consumers.connect.storage.states import TargetState, TaskId
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)


class ConnectorChanged(NamedTuple):
    """A connector has a configuration, perhaps the same."""

    connector: str
    is_new: bool


class ConnectorRemoved(NamedTuple):
    """A connector was deleted."""

    connector: str


class TasksChanged(NamedTuple):
    """A connector has other tasks."""

    connector: str


class TargetChanged(NamedTuple):
    """A connector is to do something else."""

    connector: str


class RestartRequested(NamedTuple):
    """All workers are to restart parts of a connector."""

    connector: str
    only_failed: bool
    include_tasks: bool


class KeyChanged(NamedTuple):
    """Workers sign with another key."""


class LevelChanged(NamedTuple):
    """A logger is to have another level on all workers."""

    logger: str
    level: str


Notice = (
    ConnectorChanged
    | ConnectorRemoved
    | TasksChanged
    | TargetChanged
    | RestartRequested
    | KeyChanged
    | LevelChanged
)


class _Damaged(Exception):
    pass


class ConfigTopic:
    """The state of all records so far."""

    def __init__(self) -> None:
        self.config: Final = ClusterConfig()
        #: The offset after the last record; -1: there was none.
        self.offset = -1
        self.session_key: SessionKey | None = None
        #: Targets may come before their connector.
        self._targets: Final[dict[str, TargetState]] = {}
        #: Tasks whose commit has not come yet, by connector and number.
        self._uncommitted: Final[dict[str, dict[int, dict[str, str]]]] = {}
        self._readers: Final[list[tuple[str, Callable[[str, Any], Notice | None]]]] = [
            (config_records.TARGET, self._read_target),
            (config_records.CONNECTOR, self._read_connector),
            (config_records.COMMIT, self._read_commit),
            (config_records.RESTART, _restart),
            (config_records.LOGGER, _level),
            (config_records.TASK_COUNT, self._read_task_count),
            (config_records.TASK, self._read_task),
        ]

    def read(self, key: bytes | None, value: bytes | None, offset: int) -> Notice | None:
        """Take a record; return what it changes."""
        self.offset = offset + 1
        try:
            name = (key or b"").decode()
            parsed = None if value is None else msgspec.json.decode(value)
            return self._read(name, parsed)
        except (*MALFORMED, _Damaged) as error:
            logger.error(
                "configurations: record %d with key %r is left out: %s", offset, key, error
            )
            return None

    def _read(self, key: str, value: Any) -> Notice | None:
        if key == config_records.SESSION_KEY:
            return self._read_key(value)
        for prefix, read in self._readers:
            if key.startswith(prefix):
                return read(key.removeprefix(prefix), value)
        raise _Damaged("the key is not one of Kafka Connect")

    def _read_target(self, connector: str, value: Any) -> Notice | None:
        if value is None:
            self._targets.pop(connector, None)
            # One that is still there has to have a target.
            self.config.apply(PutTarget(connector, TargetState.STARTED))
            return None
        members = _object(value)
        text = members.get("state.v2")
        if not isinstance(text, str):
            text = members.get("state")  # of a worker before Kafka 3.5
        try:
            target = TargetState(text)
        except ValueError:
            raise _Damaged(f"state {text!r} is unknown") from None
        former = self._targets.get(connector, TargetState.STARTED)
        self._targets[connector] = target
        self.config.apply(PutTarget(connector, target))
        if connector not in self.config or target is former:
            return None
        return TargetChanged(connector)

    def _read_connector(self, connector: str, value: Any) -> Notice | None:
        if value is None:
            known = connector in self.config
            self._remove(connector)
            return ConnectorRemoved(connector) if known else None
        properties = _properties(value)
        is_new = connector not in self.config
        target = self._targets.get(connector, TargetState.STARTED)
        self.config.apply(PutConnector(connector, properties, target))
        return ConnectorChanged(connector, is_new)

    def _remove(self, connector: str) -> None:
        self.config.apply(RemoveConnector(connector))
        self._uncommitted.pop(connector, None)

    def _read_task(self, name: str, value: Any) -> Notice | None:
        connector, dash, number = name.rpartition("-")
        if not dash or not number.isascii() or not number.isdigit():
            raise _Damaged("the key names no task")
        if value is not None:
            tasks = self._uncommitted.setdefault(connector, {})
            tasks[TaskId(connector, int(number)).task] = _properties(value)
        return None

    def _read_commit(self, connector: str, value: Any) -> Notice | None:
        if connector not in self.config:
            # It was deleted, and compaction has removed that, but not the tasks.
            self._remove(connector)
            return None
        count = _count(value, "tasks")
        # With fewer tasks than before, compaction may leave tasks beyond the last.
        tasks = self._uncommitted.pop(connector, {})
        if any(number not in tasks for number in range(count)):
            logger.warning(
                "configurations: not all %d tasks of connector %s are there; its work will be "
                "divided anew",
                *(count, connector),
            )
            self.config.apply(RemoveTasks(connector))
        else:
            complete = [tasks[number] for number in range(count)]
            self.config.apply(PutTasks(connector, complete))
        return TasksChanged(connector)

    def _read_task_count(self, connector: str, value: Any) -> Notice | None:
        # Earlier versions wrote `tasks`.
        self.config.apply(PutFencing(connector, _count(value, "task-count", "tasks")))
        return None

    def _read_key(self, value: Any) -> Notice:
        members = _object(value)
        key, algorithm = members.get("key"), members.get("algorithm")
        created_ms = members.get("creation-timestamp")
        if not (isinstance(key, str) and isinstance(algorithm, str) and type(created_ms) is int):
            raise _Damaged("a session key has key, algorithm and creation-timestamp")
        try:
            decoded = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise _Damaged("the session key is no Base64") from None
        self.session_key = SessionKey(decoded, algorithm, created_ms)
        return KeyChanged()


def _restart(connector: str, value: Any) -> Notice:
    members = _object(value)
    return RestartRequested(
        connector,
        only_failed=members.get("only-failed") is True,
        include_tasks=members.get("include-tasks") is True,
    )


def _level(name: str, value: Any) -> Notice | None:
    if value is None:
        return None
    level = _object(value).get("level")
    if not isinstance(level, str):
        raise _Damaged("level is no text")
    return LevelChanged(name, level)


def _count(value: Any, *names: str) -> int:
    """Return the first of some members that is there."""
    members = _object(value)
    name = next((each for each in names if each in members), names[0])
    count = members.get(name)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise _Damaged(f"{name} is no number")
    return count


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Damaged("the value is no JSON object")
    return value


def _properties(value: Any) -> dict[str, str]:
    properties = _object(value).get("properties")
    if not isinstance(properties, dict) or not all(
        text is None or isinstance(text, str) for text in properties.values()
    ):
        raise _Damaged("properties are no texts")
    return {name: text for name, text in properties.items() if text is not None}
