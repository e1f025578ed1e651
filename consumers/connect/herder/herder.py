"""What a worker does about connectors: what each request changes, in which order, and its answer.

The herder decides and waits for nothing. Its operations are generators of effects
(`consumers/connect/herder/effects.py`); questions are answered from the stores at once. Two
operations about the same connector must not run at the same time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from consumers.connect.configuration.connector_validation import ConfigInfos
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.answers import (
    ActiveTopics,
    ConnectorInfo,
    ConnectorOffset,
    ConnectorOffsets,
    ConnectorState,
    ConnectorStateInfo,
    Created,
    Message,
    TaskInfo,
    TaskPlace,
    TaskState,
)
from consumers.connect.herder.effects import (
    AlterSinkOffsets,
    AlterSourceOffsets,
    DivideWork,
    MoveConnector,
    MoveTasks,
    Operation,
    ReadOffsets,
    StartConnector,
    StartTask,
    StopConnector,
    StopTasks,
    Validate,
    Write,
)
from consumers.connect.herder.offset_requests import (
    modified,
    parse_sink_offsets,
    source_offsets,
)
from consumers.connect.herder.refusals import AlreadyExists, BadRequest, NotFound
from consumers.connect.herder.restart_plan import RestartPlan, RestartRequest, restart_plan
from consumers.connect.herder.task_configs import with_variables
from consumers.connect.observability.measures import Measure
from consumers.connect.storage.configurations import (
    ClusterConfig,
    ConfigurationStore,
    Properties,
    PutConnector,
    PutTarget,
    PutTasks,
    RemoveConnector,
    RemoveTasks,
)
from consumers.connect.storage.states import State, Status, TargetState, TaskId
from consumers.connect.storage.statuses import StatusStore

logger = logging.getLogger(__name__)

_METRICS: Final = "connect-worker-metrics"
_COUNTED: Final = (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED, State.RESTARTING)
SOURCE: Final = "source"
SINK: Final = "sink"


class Herder:
    """Looks after the connectors of a worker; all methods are called in one thread."""

    def __init__(
        self,
        configurations: ConfigurationStore,
        statuses: StatusStore,
        worker_id: str,
        type_of: Callable[[Properties], str],
        version_of: Callable[[Properties], str | None] = lambda _properties: None,
    ) -> None:
        """`type_of` returns the type of a configuration's connector: source, sink or unknown.

        `version_of` returns the version of its class, None if that is not known.
        """
        self._configurations: Final = configurations
        self._statuses: Final = statuses
        self._worker_id: Final = worker_id
        self._type_of: Final = type_of
        self._version_of: Final = version_of
        #: That of the workers' group; a worker on its own has none.
        self.generation = 0

    @property
    def config(self) -> ClusterConfig:
        """What has been configured."""
        return self._configurations.config

    # ---- questions ----

    def connectors(self) -> list[str]:
        """Return the names of all connectors."""
        return self.config.connectors()

    def info(self, connector: str) -> ConnectorInfo:
        """Return a connector with its tasks; raises NotFound."""
        self._require(connector)
        properties = self.config.properties(connector)
        tasks = [TaskPlace.of(each) for each in self.config.tasks(connector)]
        return ConnectorInfo(connector, properties, tasks, self._type_of(properties))

    def tasks(self, connector: str) -> list[TaskInfo]:
        """Return the tasks of a connector with their properties; raises NotFound."""
        self._require(connector)
        return [
            TaskInfo(TaskPlace.of(each), self.config.task_properties(each) or {})
            for each in self.config.tasks(connector)
        ]

    def state(self, connector: str) -> ConnectorStateInfo:
        """Return the state of a connector and its tasks; raises NotFound."""
        status = self._statuses.connector(connector)
        if status is None:
            raise NotFound(f"No status found for connector {connector}")
        return self._state_info(connector, status, self._statuses.tasks(connector))

    def task_state(self, task: TaskId) -> TaskState:
        """Return the state of a task; raises NotFound."""
        status = self._statuses.task(task)
        if status is None:
            raise NotFound(f"No status found for task {task}")
        return TaskState.of(task, status)

    def topics(self, connector: str) -> ActiveTopics:
        """Return the topics that a connector has used."""
        return ActiveTopics(self._statuses.topics(connector))

    def reset_topics(self, connector: str) -> None:
        """Forget the topics that a connector has used."""
        self._statuses.remove_topics(connector)

    def measures(self) -> Iterator[Measure]:
        """Yield the states of connectors and of their tasks, as this worker knows them."""
        for connector in self.connectors():
            labels = {"connector": connector}
            status = self._statuses.connector(connector)
            if status is not None:
                yield _state("connector-metrics", labels, status)
            counts = Counter(each.state for _, each in self._statuses.tasks(connector))
            yield Measure(_METRICS, "connector-total-task-count", counts.total(), labels)
            for state in _COUNTED:
                name = f"connector-{state.value.lower()}-task-count"
                yield Measure(_METRICS, name, counts[state], labels)
            for task, each in self._statuses.tasks(connector):
                more = {**labels, "task": str(task.task)}
                yield _state("connector-task-metrics", more, each)

    def check_known(self, connector: str) -> None:
        """Raise NotFound for a connector that is to pause or to resume, and does not exist."""
        if connector not in self.config:
            raise NotFound(f"Unknown connector {connector}")

    # ---- what the worker tells ----

    def connector_is(self, connector: str, state: State, trace: str = "") -> None:
        """Take note of a connector's state; of one that was deleted none is kept."""
        if connector in self.config:
            self._statuses.put_connector(connector, self._status(connector, state, trace))

    def task_is(self, task: TaskId, state: State, trace: str = "") -> None:
        """Take note of a task's state; of one that was removed none is kept."""
        if self.config.task_properties(task) is not None:
            self._statuses.put_task(task, self._status(task, state, trace))

    def topic_is_used(self, connector: str, topic: str) -> None:
        """Take note of a topic that a connector uses."""
        if connector in self.config:
            self._statuses.put_topic(connector, topic)

    # ---- operations ----

    def put(
        self,
        connector: str,
        properties: Mapping[str, str | None],
        target: TargetState | None = None,
        *,
        may_replace: bool,
    ) -> Operation[Created]:
        """Create a connector, or configure it anew.

        Raises BadRequest for a configuration that is not valid, AlreadyExists, and ConnectException
        if the connector does not start; then it exists, and is FAILED.
        """
        valid = yield from self._validated(properties)
        exists = connector in self.config
        if exists and not may_replace:
            raise AlreadyExists(f"Connector {connector} already exists")
        if exists:
            yield StopConnector(connector)
        yield Write(PutConnector(connector, valid, target))
        yield from self._start(connector)
        return Created(not exists, self.info(connector))

    def _validated(self, properties: Mapping[str, str | None]) -> Operation[dict[str, str]]:
        """Return properties that are valid; raises BadRequest."""
        infos: ConfigInfos = yield Validate(properties)
        _raise_errors(infos)
        return {name: text for name, text in properties.items() if text is not None}

    def patch(self, connector: str, patch: Mapping[str, str | None]) -> Operation[Created]:
        """Change some properties of a connector, None removes one (KIP-477); raises as `put`."""
        self._require(connector)
        patched: dict[str, str | None] = {**self.config.properties(connector)}
        for name, text in patch.items():
            if text is None:
                patched.pop(name, None)
            else:
                patched[name] = text
        return (yield from self.put(connector, patched, may_replace=True))

    def delete(self, connector: str) -> Operation[None]:
        """Delete a connector; its offsets stay. Raises NotFound."""
        self._require(connector)
        yield from self._remove_tasks(connector)
        yield StopConnector(connector)
        yield Write(RemoveConnector(connector))
        self._statuses.remove_connector(connector)

    def pause(self, connector: str) -> Operation[None]:
        """Pause a connector and its tasks, which stay; raises NotFound."""
        self.check_known(connector)
        yield Write(PutTarget(connector, TargetState.PAUSED))
        yield MoveConnector(connector, TargetState.PAUSED)
        yield MoveTasks(connector, TargetState.PAUSED)

    def resume(self, connector: str) -> Operation[None]:
        """Have a connector that is paused or stopped go on; raises NotFound."""
        self.check_known(connector)
        yield Write(PutTarget(connector, TargetState.STARTED))
        yield MoveTasks(connector, TargetState.STARTED)
        if (yield MoveConnector(connector, TargetState.STARTED)):
            yield from self.divide(connector)

    def stop(self, connector: str) -> Operation[None]:
        """Stop a connector and remove its tasks (KIP-875); raises NotFound."""
        self._require(connector)
        yield from self._remove_tasks(connector)
        yield Write(PutTarget(connector, TargetState.STOPPED))
        yield MoveConnector(connector, TargetState.STOPPED)

    def restart(self, connector: str) -> Operation[None]:
        """Restart a connector without its tasks; raises NotFound, ConnectException."""
        self._require(connector)
        yield StopConnector(connector)
        yield from self._start(connector)

    def restart_parts(self, request: RestartRequest) -> Operation[ConnectorStateInfo]:
        """Restart what a request means; return the state as it is meanwhile (KIP-745).

        Raises NotFound.
        """
        connector = request.connector
        if connector not in self.config:
            raise NotFound(f"Unknown connector: {connector}")
        plan = self._plan(request)
        if plan.restarts_connector:
            yield StopConnector(connector)
            self.connector_is(connector, State.RESTARTING)
        if plan.tasks:
            yield StopTasks(plan.tasks)
            for task in plan.tasks:
                self.task_is(task, State.RESTARTING)
        answer = self.state(connector)
        if plan.restarts_connector:
            try:
                yield from self._start(connector)
            except ConnectException as error:
                logger.error("connector %s was not restarted: %s", connector, error)
        for task in plan.tasks:
            yield self._start_task(task)
        return answer

    def restart_task(self, task: TaskId) -> Operation[None]:
        """Restart a task; raises NotFound, ConnectException."""
        self._require(task.connector)
        if self.config.task_properties(task) is None:
            raise NotFound(f"Task {task} not found")
        yield StopTasks([task])
        if not (yield self._start_task(task)):
            raise ConnectException(f"Failed to start task: {task}")

    def divide(self, connector: str) -> Operation[None]:
        """Make a connector's tasks anew, if they have changed; raises ConnectException."""
        tasks = yield from self._new_tasks(connector)
        if tasks is None:
            return
        yield from self._remove_tasks(connector)
        yield Write(PutTasks(connector, tasks))
        for task in self.config.tasks(connector):
            yield self._start_task(task)

    def _new_tasks(self, connector: str) -> Operation[Sequence[Properties] | None]:
        """Return how a connector divides its work now, None if nothing has changed."""
        if connector not in self.config:
            return None
        properties = self.config.properties(connector)
        if self.config.target(connector) is not TargetState.STARTED:
            return None
        resolved: list[dict[str, str]] | None = yield DivideWork(connector, properties)
        if resolved is None:
            return None
        tasks = with_variables(properties, resolved)
        return None if self.config.has_tasks(connector, tasks) else tasks

    def offsets(self, connector: str) -> Operation[ConnectorOffsets]:
        """Return how far a connector has come; raises NotFound, ConnectException."""
        self._require(connector)
        found: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = yield ReadOffsets(
            connector, self.config.properties(connector)
        )
        return ConnectorOffsets([ConnectorOffset(*each) for each in found])

    def alter_offsets(
        self, connector: str, offsets: Sequence[ConnectorOffset] | None
    ) -> Operation[Message]:
        """Set offsets of a stopped connector, or reset all (None); raises Refused and others."""
        self._require(connector)
        if self.config.target(connector) is not TargetState.STOPPED or self.config.tasks(connector):
            raise BadRequest(
                "Connectors must be in the STOPPED state before their offsets can be modified. "
                "This can be done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{connector}/stop' endpoint"
            )
        properties = self.config.properties(connector)
        if self._type_of(properties) == SINK:
            parsed = None if offsets is None else parse_sink_offsets(offsets)
            is_complete = yield AlterSinkOffsets(connector, properties, parsed)
        else:
            pairs = None if offsets is None else source_offsets(offsets)
            is_complete = yield AlterSourceOffsets(connector, properties, pairs)
        return modified(is_reset=offsets is None, is_complete=bool(is_complete))

    # ---- steps ----

    def _status(self, of: str | TaskId, state: State, trace: str) -> Status:
        """Return the status of a connector or a task that has a state here."""
        connector = of.connector if isinstance(of, TaskId) else of
        version = None
        if connector in self.config:
            version = self._version_of(self.config.properties(connector))
        return Status(state, self._worker_id, trace, self.generation, version)

    def _start(self, connector: str) -> Operation[None]:
        yield StartConnector(
            connector, self.config.properties(connector), self.config.target(connector)
        )
        yield from self.divide(connector)

    def _start_task(self, task: TaskId) -> StartTask:
        connector = task.connector
        return StartTask(
            task,
            self.config.properties(connector),
            self.config.task_properties(task) or {},
            self.config.target(connector),
        )

    def _remove_tasks(self, connector: str) -> Operation[None]:
        tasks = self.config.tasks(connector)
        if not tasks:
            return
        yield StopTasks(tasks)
        yield Write(RemoveTasks(connector))
        for task in tasks:
            self._statuses.remove_task(task)

    def _plan(self, request: RestartRequest) -> RestartPlan:
        """Return what a request restarts; raises NotFound."""
        status = self._statuses.connector(request.connector)
        if status is None:
            raise NotFound(f"Status for connector {request.connector} not found")
        return restart_plan(request, status, self._statuses.tasks(request.connector))

    def _require(self, connector: str) -> None:
        if connector not in self.config:
            raise NotFound(f"Connector {connector} not found")

    def _state_info(
        self, connector: str, status: Status, tasks: Sequence[tuple[TaskId, Status]]
    ) -> ConnectorStateInfo:
        type_ = "unknown"
        if connector in self.config:
            type_ = self._type_of(self.config.properties(connector))
        return ConnectorStateInfo(
            connector,
            ConnectorState.of(status),
            [TaskState.of(task, each) for task, each in tasks],
            type_,
        )


def _state(type_: str, labels: Mapping[str, str], status: Status) -> Measure:
    """Return a state as a measure: 1, with the state as a label."""
    return Measure(type_, "status", 1, {**labels, "status": status.state.value.lower()})


def _raise_errors(infos: ConfigInfos) -> None:
    if not infos.error_count:
        return
    lines = [
        "Connector configuration is invalid and contains the following "
        f"{infos.error_count} error(s):",
        *(text for _, text in infos.errors()),
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    ]
    raise BadRequest("\n".join(lines))
