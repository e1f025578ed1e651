"""Which parts of a connector a restart is for (KIP-745)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from consumers.connect.storage.states import State, Status, TaskId


class RestartRequest(NamedTuple):
    """What POST /connectors/NAME/restart asks for."""

    connector: str
    only_failed: bool = False
    include_tasks: bool = False

    @property
    def is_plain(self) -> bool:
        """Tell whether there are no parameters: then the connector alone restarts."""
        return not self.only_failed and not self.include_tasks


class RestartPlan(NamedTuple):
    """What restarts."""

    restarts_connector: bool
    tasks: list[TaskId]


def restart_plan(
    request: RestartRequest, connector: Status, tasks: Sequence[tuple[TaskId, Status]]
) -> RestartPlan:
    """Return what restarts, given the present states."""

    def is_meant(status: Status) -> bool:
        return not request.only_failed or status.state is State.FAILED

    return RestartPlan(
        is_meant(connector),
        [task for task, status in tasks if request.include_tasks and is_meant(status)],
    )
