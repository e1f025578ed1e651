"""What a worker runs, or is to run: connectors and tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from consumers.connect.storage.states import TaskId


class Work(NamedTuple):
    """A set of connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    @staticmethod
    def of(connectors: Iterable[str] = (), tasks: Iterable[TaskId] = ()) -> Work:
        """Return the set of these connectors and tasks."""
        return Work(frozenset(connectors), frozenset(tasks))

    @staticmethod
    def union(parts: Iterable[Work]) -> Work:
        """Return all that is in one of the parts."""
        listed = list(parts)
        return Work.of(
            (each for part in listed for each in part.connectors),
            (each for part in listed for each in part.tasks),
        )

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing."""
        return not self.connectors and not self.tasks

    def plus(self, other: Work) -> Work:
        """Return what is in one of both."""
        return Work(self.connectors | other.connectors, self.tasks | other.tasks)

    def minus(self, *others: Work) -> Work:
        """Return what is in none of the others."""
        connectors, tasks = self.connectors, self.tasks
        for other in others:
            connectors, tasks = connectors - other.connectors, tasks - other.tasks
        return Work(connectors, tasks)

    def both(self, other: Work) -> Work:
        """Return what is in both."""
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)

    def __str__(self) -> str:
        named = [*sorted(self.connectors), *map(str, sorted(self.tasks))]
        return ", ".join(named) or "nothing"
