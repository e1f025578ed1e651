"""What one of several workers does about connectors: who may decide, and what is left to whom.

Only the leader changes configurations, so that none is written over another one that was not seen.
Work begins and ends where the group has assigned it, when each worker reads what has changed. What
another worker has to do is WrongWorker, which names it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.errors.dead_letters import trace_of
from consumers.connect.herder.answers import (
    ConnectorInfo,
    ConnectorOffset,
    ConnectorState,
    ConnectorStateInfo,
    Created,
    Message,
    TaskPlace,
)
from consumers.connect.herder.effects import (
    FenceProducers,
    FenceTasks,
    MoveConnector,
    MoveTasks,
    Operation,
    PublishTasks,
    Refresh,
    RequestRestart,
    StopConnector,
    StopTasks,
    Write,
)
from consumers.connect.herder.herder import Herder
from consumers.connect.herder.refusals import (
    AlreadyExists,
    BadRequest,
    NotFound,
    RebalanceNeeded,
    WrongWorker,
)
from consumers.connect.herder.restart_plan import RestartRequest
from consumers.connect.storage.configurations import (
    ConfigurationStore,
    Properties,
    PutConnector,
    PutFencing,
    PutTarget,
    PutTasks,
    RemoveConnector,
    RemoveTasks,
)
from consumers.connect.storage.states import State, Status, TargetState, TaskId
from consumers.connect.storage.statuses import StatusStore

logger = logging.getLogger(__name__)


class Cluster(Protocol):
    """What a worker knows of the others."""

    @property
    def is_leader(self) -> bool:
        """Tell whether this worker leads."""

    @property
    def leader_url(self) -> str | None:
        """The URL of the leader, None if it is not known."""

    @property
    def rebalance_expected(self) -> bool:
        """Tell whether what has changed is going to move work."""

    def runs_connector(self, connector: str) -> bool:
        """Tell whether a connector is assigned to this worker."""

    def runs_task(self, task: TaskId) -> bool:
        """Tell whether a task is assigned to this worker."""

    def owner_of_connector(self, connector: str) -> str | None:
        """Return the URL of the worker that has a connector; the leader knows."""

    def owner_of_task(self, task: TaskId) -> str | None:
        """Return the URL of the worker that has a task; the leader knows."""


class DistributedHerder(Herder):
    """Looks after the connectors of several workers, as one of them."""

    def __init__(
        self,
        configurations: ConfigurationStore,
        statuses: StatusStore,
        worker_id: str,
        type_of: Callable[[Properties], str],
        cluster: Cluster,
        version_of: Callable[[Properties], str | None] = lambda _properties: None,
        *,
        is_exactly_once: bool = False,
    ) -> None:
        """See Herder; `is_exactly_once` says that sources write each record once."""
        super().__init__(configurations, statuses, worker_id, type_of, version_of)
        self._cluster: Final = cluster
        self._is_exactly_once: Final = is_exactly_once
        #: In which generation this worker was to end connectors and tasks.
        self._ended_in: Final[dict[str | TaskId, int]] = {}

    # ---- requests ----

    def put(
        self,
        connector: str,
        properties: Mapping[str, str | None],
        target: TargetState | None = None,
        *,
        may_replace: bool,
    ) -> Operation[Created]:
        """See Herder; the connector starts later, on some worker."""
        valid = yield from self._validated(properties)
        self._lead("Only the leader can set connector configs.")
        exists = connector in self.config
        if exists and not may_replace:
            raise AlreadyExists(f"Connector {connector} already exists")
        yield Write(PutConnector(connector, valid, target))
        tasks = [TaskPlace.of(each) for each in self.config.tasks(connector)]
        return Created(not exists, ConnectorInfo(connector, valid, tasks, self._type_of(valid)))

    def patch(self, connector: str, patch: Mapping[str, str | None]) -> Operation[Created]:
        """See Herder."""
        self._lead("Only the leader can set connector configs.")
        return (yield from super().patch(connector, patch))

    def delete(self, connector: str) -> Operation[None]:
        """See Herder; it and its tasks end later."""
        self._lead("Only the leader can delete connector configs.")
        self._require(connector)
        yield Write(RemoveConnector(connector))

    def pause(self, connector: str) -> Operation[None]:
        """See Herder."""
        self.check_known(connector)
        yield Write(PutTarget(connector, TargetState.PAUSED))

    def resume(self, connector: str) -> Operation[None]:
        """See Herder."""
        self.check_known(connector)
        yield Write(PutTarget(connector, TargetState.STARTED))

    def stop(self, connector: str) -> Operation[None]:
        """See Herder."""
        self.check_known(connector)
        self._lead("Only the leader can transition connectors to the STOPPED state.")
        # In this order: a connector that runs without tasks is less bad than one that is stopped
        # and has some.
        yield Write(RemoveTasks(connector))
        yield Write(PutTarget(connector, TargetState.STOPPED))

    def restart(self, connector: str) -> Operation[None]:
        """See Herder."""
        self._check_settled()
        if connector not in self.config:
            raise NotFound(f"Unknown connector: {connector}")
        if self._cluster.runs_connector(connector):
            yield from super().restart(connector)
            return
        self._lead("Only the leader can process restart requests.")
        raise WrongWorker(
            "Cannot restart connector since it is not assigned to this member",
            self._cluster.owner_of_connector(connector),
        )

    def restart_task(self, task: TaskId) -> Operation[None]:
        """See Herder."""
        self._check_settled()
        if task.connector not in self.config:
            raise NotFound(f"Unknown connector: {task.connector}")
        if self.config.task_properties(task) is None:
            raise NotFound(f"Unknown task: {task}")
        if self._cluster.runs_task(task):
            yield from super().restart_task(task)
            return
        self._lead("Cannot restart task since it is not assigned to this member")
        raise WrongWorker(
            "Cannot restart task since it is not assigned to this member",
            self._cluster.owner_of_task(task),
        )

    def restart_parts(self, request: RestartRequest) -> Operation[ConnectorStateInfo]:
        """See Herder; each worker restarts what it has, when it reads the request."""
        self._check_settled()
        connector = request.connector
        if connector not in self.config:
            raise NotFound(f"Unknown connector: {connector}")
        self._lead("Only the leader can process restart requests.")
        plan = self._plan(request)
        state = self.state(connector)
        yield RequestRestart(connector, request.only_failed, request.include_tasks)
        word = State.RESTARTING.value
        own = state.connector
        return ConnectorStateInfo(
            connector,
            ConnectorState(word, own.worker_id) if plan.restarts_connector else own,
            [
                type(each)(each.id, word, each.worker_id)
                if TaskId(connector, each.id) in plan.tasks
                else each
                for each in state.tasks
            ],
            state.type,
        )

    def alter_offsets(
        self, connector: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Operation[Message]:
        """See Herder."""
        self._check_settled()
        self._lead("Only the leader can process external offsets modification requests")
        yield Refresh()
        return (yield from super().alter_offsets(connector, offsets))

    def put_tasks(self, connector: str, tasks: Sequence[Properties]) -> Operation[None]:
        """Store the tasks that another worker's connector has made; raises Refused."""
        self._lead("Only the leader may write task configurations.")
        self._require(connector)
        if tasks and self.config.target(connector) is TargetState.STOPPED:
            raise BadRequest(
                f"Cannot submit non-empty set of task configs for stopped connector {connector}"
            )
        yield Refresh()
        yield Write(PutTasks(connector, tasks))

    def fence(self, connector: str) -> Operation[None]:
        """Fence the former tasks of an exactly-once source; raises Refused, ConnectException."""
        self._lead("Only the leader may perform zombie fencing.")
        self._require(connector)
        if self._type_of(self.config.properties(connector)) != "source":
            raise BadRequest(f"Connector {connector} is not a source connector")
        if not self._is_exactly_once:
            raise ConnectException("This worker does not have exactly-once source support enabled")
        yield Refresh()
        if not self.config.is_fencing_due(connector):
            return
        former, tasks = self.config.fenced_tasks(connector), len(self.config.tasks(connector))
        # A single task fences the former single one when it begins.
        if former is not None and not former == tasks == 1:
            yield FenceProducers(connector, self.config.properties(connector), former)
        yield Write(PutFencing(connector, tasks))

    # ---- what is assigned ----

    def begin(self, connector: str) -> Operation[None]:
        """Start a connector that was assigned to this worker; raises ConnectException."""
        if connector in self.config:
            self._ended_in.pop(connector, None)
            yield StopConnector(connector)
            yield from self._start(connector)

    def begin_tasks(self, tasks: Iterable[TaskId]) -> Operation[None]:
        """Start tasks that were assigned to this worker."""
        for task in sorted(tasks):
            if self._cluster.runs_task(task) and self.config.task_properties(task) is not None:
                self._ended_in.pop(task, None)
                yield StopTasks([task])
                try:
                    yield from self._fence_former(task.connector)
                except ConnectException as error:
                    logger.error("task %s cannot start: %s", task, error)
                    self.task_is(task, State.FAILED, trace_of(error))
                    continue
                yield self._start_task(task)

    def _fence_former(self, connector: str) -> Operation[None]:
        """Have former tasks of an exactly-once source fenced; raises ConnectException."""
        properties = self.config.properties(connector)
        if self._is_exactly_once and self._type_of(properties) == "source":
            if self._cluster.is_leader:
                yield from self.fence(connector)
            else:
                yield FenceTasks(connector)

    def end(
        self,
        connectors: Iterable[str],
        tasks: Iterable[TaskId],
        *,
        generation: int,
        within_s: float | None = None,
    ) -> Operation[None]:
        """End what this worker is to run no more, as was decided in a generation.

        Its end is told as one of that generation, however late it comes: another worker may run
        it in the next one.
        """
        ended = sorted(tasks)
        self._ended_in.update(dict.fromkeys((*connectors, *ended), generation))
        if ended:
            yield StopTasks(ended, within_s)
        for connector in sorted(connectors):
            yield StopConnector(connector)

    def move(self, connector: str) -> Operation[None]:
        """Bring what this worker has of a connector into the state that a user wants."""
        if connector not in self.config:
            return
        target = self.config.target(connector)
        yield MoveTasks(connector, target)
        if not self._cluster.runs_connector(connector):
            return
        if (yield MoveConnector(connector, target)) and target is TargetState.STARTED:
            yield from self.divide(connector)

    def restart_here(self, request: RestartRequest) -> Operation[None]:
        """Restart what this worker has of what a request means."""
        connector = request.connector
        try:
            plan = self._plan(request)
        except NotFound as error:
            logger.warning("nothing is restarted: %s", error)
            return
        has_connector = plan.restarts_connector and self._cluster.runs_connector(connector)
        tasks = [each for each in plan.tasks if self._cluster.runs_task(each)]
        if has_connector:
            yield StopConnector(connector)
            self.connector_is(connector, State.RESTARTING)
        if tasks:
            yield StopTasks(tasks)
            for task in tasks:
                self.task_is(task, State.RESTARTING)
        if has_connector:
            try:
                yield from self._start(connector)
            except ConnectException as error:
                logger.error("connector %s was not restarted: %s", connector, error)
        yield from self.begin_tasks(tasks)

    def divide(self, connector: str) -> Operation[None]:
        """See Herder; the tasks start where they are assigned."""
        tasks = yield from self._new_tasks(connector)
        if tasks is not None:
            yield PublishTasks(connector, tasks)

    def forget_deleted(self) -> None:
        """Remove the states of connectors and tasks that do not exist; for the leader."""
        for connector in self._statuses.connectors():
            if connector not in self.config:
                self._statuses.remove_connector(connector)
                continue
            for task, _ in self._statuses.tasks(connector):
                if self.config.task_properties(task) is None:
                    self._statuses.remove_task(task)

    # ---- steps ----

    def _status(self, of: str | TaskId, state: State, trace: str) -> Status:
        status = super()._status(of, state, trace)
        if state is State.UNASSIGNED:
            status = status._replace(generation=self._ended_in.get(of, self.generation))
        return status

    def _lead(self, message: str) -> None:
        if not self._cluster.is_leader:
            raise WrongWorker(message, self._cluster.leader_url)

    def _check_settled(self) -> None:
        if self._cluster.rebalance_expected:
            raise RebalanceNeeded
