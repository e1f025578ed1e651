"""The states of connectors and tasks, and the topics that connectors use (KIP-558)."""

from __future__ import annotations

from typing import Final, Protocol

from consumers.connect.storage.states import Status, TaskId


class StatusStore(Protocol):
    """Keeps states. Methods are called on the worker's event loop."""

    def put_connector(self, connector: str, status: Status) -> None:
        """Set the state of a connector."""

    def put_task(self, task: TaskId, status: Status) -> None:
        """Set the state of a task."""

    def remove_task(self, task: TaskId) -> None:
        """Forget a task."""

    def remove_connector(self, connector: str) -> None:
        """Forget a connector with its tasks and topics."""

    def connectors(self) -> list[str]:
        """Return the connectors that have a state, or a task that has one."""

    def connector(self, connector: str) -> Status | None:
        """Return the state of a connector, None if it has none."""

    def task(self, task: TaskId) -> Status | None:
        """Return the state of a task, None if it has none."""

    def tasks(self, connector: str) -> list[tuple[TaskId, Status]]:
        """Return the states of a connector's tasks, in their order."""

    def put_topic(self, connector: str, topic: str, task: int = 0) -> None:
        """Take note that a task of a connector uses a topic."""

    def topics(self, connector: str) -> list[str]:
        """Return the topics that a connector has used."""

    def remove_topics(self, connector: str) -> None:
        """Forget the topics that a connector has used."""


class MemoryStatusStore:
    """Keeps states until the process ends."""

    def __init__(self) -> None:
        self._connectors: Final[dict[str, Status]] = {}
        self._tasks: Final[dict[TaskId, Status]] = {}
        self._topics: Final[dict[str, dict[str, None]]] = {}

    def put_connector(self, connector: str, status: Status) -> None:
        """See StatusStore."""
        self._connectors[connector] = status

    def put_task(self, task: TaskId, status: Status) -> None:
        """See StatusStore."""
        self._tasks[task] = status

    def remove_task(self, task: TaskId) -> None:
        """See StatusStore."""
        self._tasks.pop(task, None)

    def remove_connector(self, connector: str) -> None:
        """See StatusStore."""
        self.remove_states(connector)
        self._topics.pop(connector, None)

    def remove_states(self, connector: str) -> None:
        """Forget a connector with its tasks, and not its topics."""
        for task, _ in self.tasks(connector):
            del self._tasks[task]
        self._connectors.pop(connector, None)

    def connectors(self) -> list[str]:
        """See StatusStore."""
        return sorted({*self._connectors, *(task.connector for task in self._tasks)})

    def connector(self, connector: str) -> Status | None:
        """See StatusStore."""
        return self._connectors.get(connector)

    def task(self, task: TaskId) -> Status | None:
        """See StatusStore."""
        return self._tasks.get(task)

    def tasks(self, connector: str) -> list[tuple[TaskId, Status]]:
        """See StatusStore."""
        return sorted(each for each in self._tasks.items() if each[0].connector == connector)

    def put_topic(self, connector: str, topic: str, task: int = 0) -> None:
        """See StatusStore."""
        self._topics.setdefault(connector, {})[topic] = None

    def remove_topic(self, connector: str, topic: str) -> None:
        """Forget that a connector has used a topic."""
        self._topics.get(connector, {}).pop(topic, None)

    def topics(self, connector: str) -> list[str]:
        """See StatusStore."""
        return list(self._topics.get(connector, ()))

    def remove_topics(self, connector: str) -> None:
        """See StatusStore."""
        self._topics.pop(connector, None)
