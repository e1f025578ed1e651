"""What a worker knows of the others, for the herder (`Cluster`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from consumers.connect.group.member import Member
from consumers.connect.group.work import Work
from consumers.connect.storage.states import TaskId


class ClusterView:
    """The group as one member sees it."""

    def __init__(self, member: Member, rebalance_expected: Callable[[], bool]) -> None:
        """`rebalance_expected` tells whether what has changed is going to move work."""
        self._member: Final = member
        self._rebalance_expected: Final = rebalance_expected

    @property
    def is_leader(self) -> bool:
        """See Cluster."""
        return self._member.is_leader

    @property
    def leader_url(self) -> str | None:
        """See Cluster."""
        return self._member.leader_url

    @property
    def rebalance_expected(self) -> bool:
        """See Cluster."""
        return self._rebalance_expected()

    def runs_connector(self, connector: str) -> bool:
        """See Cluster."""
        return connector in self._member.work.connectors

    def runs_task(self, task: TaskId) -> bool:
        """See Cluster."""
        return task in self._member.work.tasks

    def owner_of_connector(self, connector: str) -> str | None:
        """See Cluster."""
        return self._member.owner_of(Work.of((connector,)))

    def owner_of_task(self, task: TaskId) -> str | None:
        """See Cluster."""
        return self._member.owner_of(Work.of((), (task,)))
