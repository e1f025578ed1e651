"""What the herder does about requests: its effects in their order, without a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from consumers.connect.configuration.connector_validation import (
    ConfigInfo,
    ConfigInfos,
    ValueInfo,
)
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.answers import ConnectorOffset, TaskPlace
from consumers.connect.herder.effects import (
    AlterSinkOffsets,
    AlterSourceOffsets,
    DivideWork,
    Effect,
    MoveConnector,
    MoveTasks,
    Operation,
    ReadOffsets,
    StartConnector,
    StartTask,
    StopTasks,
    Validate,
    Write,
)
from consumers.connect.herder.herder import Herder
from consumers.connect.herder.refusals import AlreadyExists, BadRequest, NotFound
from consumers.connect.herder.restart_plan import RestartRequest
from consumers.connect.plugins.sink_task import TopicPartition
from consumers.connect.storage.configurations import MemoryConfigurationStore, PutTarget
from consumers.connect.storage.states import State, TargetState, TaskId
from consumers.connect.storage.statuses import MemoryStatusStore

T = TypeVar("T")
CONFIG = {"name": "c", "connector.class": "source", "password": "${env:P}"}
TASK = TaskId("c", 0)


class World:
    """Carries effects out as a worker would, and remembers them."""

    def __init__(self) -> None:
        self.store = MemoryConfigurationStore()
        self.herder = Herder(
            self.store, MemoryStatusStore(), "w:1", lambda properties: properties["connector.class"]
        )
        self.effects: list[Effect] = []
        self.task_count = 1
        self.errors: dict[type[Any], Exception] = {}
        self.results: dict[type[Any], Any] = {}
        self.messages: list[str] = []

    def run(self, operation: Operation[T]) -> T:
        self.effects = []
        try:
            effect = next(operation)
            while True:
                self.effects.append(effect)
                error = self.errors.get(type(effect))
                if error is not None:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(self._result(effect))
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _result(self, effect: Effect) -> Any:
        if type(effect) in self.results:
            return self.results[type(effect)]
        match effect:
            case Validate():
                value = ValueInfo(
                    name="x", value=None, recommended_values=[], errors=self.messages, visible=True
                )
                return ConfigInfos("c", len(self.messages), [], [ConfigInfo(None, value)])
            case Write():
                self.store.config.apply(effect.change)
            case StartConnector():
                states = {
                    TargetState.STARTED: State.RUNNING,
                    TargetState.PAUSED: State.PAUSED,
                    TargetState.STOPPED: State.STOPPED,
                }
                self.herder.connector_is(effect.connector, states[effect.target])
            case StartTask():
                self.herder.task_is(effect.task, State.RUNNING)
                return True
            case MoveConnector():
                return True
            case DivideWork():
                return [
                    {"number": str(number), "password": "secret"}
                    for number in range(self.task_count)
                ]
            case ReadOffsets():
                return [({"f": "a"}, {"p": 1})]
            case AlterSourceOffsets() | AlterSinkOffsets():
                return True
        return None

    def create(self, config: Mapping[str, str] = CONFIG, target: TargetState | None = None) -> None:
        self.run(self.herder.put("c", config, target, may_replace=False))

    def kinds(self) -> list[str]:
        """Return the names of the effects, those of changes by the change."""
        return [
            type(each.change if isinstance(each, Write) else each).__name__ for each in self.effects
        ]


@pytest.fixture
def world() -> World:
    return World()


def test_a_connector_is_created_with_its_tasks(world: World) -> None:
    world.task_count = 2
    created = world.run(world.herder.put("c", CONFIG, may_replace=False))
    assert created.is_new
    assert created.info.type == "source"
    assert created.info.tasks == [TaskPlace("c", 0), TaskPlace("c", 1)]
    assert world.kinds() == [
        *("Validate", "PutConnector", "StartConnector", "DivideWork", "PutTasks"),
        *("StartTask", "StartTask"),
    ]
    state = world.herder.state("c")
    assert state.connector.state == "RUNNING"
    assert [(each.id, each.state, each.worker_id) for each in state.tasks] == [
        (0, "RUNNING", "w:1"), (1, "RUNNING", "w:1")
    ]  # fmt: skip


def test_tasks_have_variables_and_not_what_they_stand_for(world: World) -> None:
    world.create()
    (task,) = world.herder.tasks("c")
    assert task.config["password"] == "${env:P}"
    assert "secret" not in repr(world.effects)


def test_a_configuration_that_is_not_valid_changes_nothing(world: World) -> None:
    world.messages = ["first", "second"]
    with pytest.raises(BadRequest) as caught:
        world.create()
    assert str(caught.value) == (
        "Connector configuration is invalid and contains the following 2 error(s):\nfirst\nsecond\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )
    assert world.herder.connectors() == []


def test_a_connector_exists_once(world: World) -> None:
    world.create()
    with pytest.raises(AlreadyExists, match=r"^Connector c already exists$"):
        world.create()


def test_a_connector_that_does_not_start_exists(world: World) -> None:
    world.errors[StartConnector] = ConnectException("it does not start")
    with pytest.raises(ConnectException, match="does not start"):
        world.create()
    assert world.herder.info("c").tasks == []


@pytest.mark.parametrize("target", [TargetState.PAUSED, TargetState.STOPPED])
def test_a_connector_may_begin_paused_or_stopped(world: World, target: TargetState) -> None:
    world.create(target=target)
    assert world.herder.state("c").connector.state == target.value
    assert world.herder.tasks("c") == []
    world.run(world.herder.resume("c"))
    assert len(world.herder.tasks("c")) == 1


def test_a_new_configuration_makes_new_tasks(world: World) -> None:
    world.create()
    created = world.run(world.herder.put("c", {**CONFIG, "x": "1"}, may_replace=True))
    assert not created.is_new
    assert world.kinds() == [
        *("Validate", "StopConnector", "PutConnector", "StartConnector", "DivideWork"),
        *("StopTasks", "RemoveTasks", "PutTasks", "StartTask"),
    ]


def test_the_same_configuration_leaves_tasks_alone(world: World) -> None:
    world.create()
    world.run(world.herder.put("c", CONFIG, may_replace=True))
    assert "StopTasks" not in world.kinds()


def test_a_patch_changes_and_removes_properties(world: World) -> None:
    world.create({**CONFIG, "a": "1", "b": "2"})
    created = world.run(world.herder.patch("c", {"a": "3", "b": None, "new": "4"}))
    assert created.info.config == {**CONFIG, "a": "3", "new": "4"}


def test_a_connector_pauses_with_its_tasks(world: World) -> None:
    world.create()
    world.run(world.herder.pause("c"))
    assert world.effects == [
        Write(PutTarget("c", TargetState.PAUSED)),
        MoveConnector("c", TargetState.PAUSED),
        MoveTasks("c", TargetState.PAUSED),
    ]
    world.run(world.herder.resume("c"))
    assert world.kinds() == ["PutTarget", "MoveTasks", "MoveConnector", "DivideWork"]


def test_a_stopped_connector_has_no_tasks(world: World) -> None:
    world.create()
    world.run(world.herder.stop("c"))
    assert world.kinds() == ["StopTasks", "RemoveTasks", "PutTarget", "MoveConnector"]
    assert world.herder.tasks("c") == []
    assert world.herder.state("c").tasks == []
    world.run(world.herder.resume("c"))
    assert len(world.herder.tasks("c")) == 1


def test_a_deleted_connector_leaves_nothing(world: World) -> None:
    world.create()
    world.run(world.herder.delete("c"))
    assert world.kinds() == ["StopTasks", "RemoveTasks", "StopConnector", "RemoveConnector"]
    assert world.herder.connectors() == []
    with pytest.raises(NotFound, match=r"^No status found for connector c$"):
        world.herder.state("c")
    # A thread may report something late.
    world.herder.connector_is("c", State.UNASSIGNED)
    world.herder.task_is(TASK, State.UNASSIGNED)
    world.herder.topic_is_used("c", "t")
    with pytest.raises(NotFound):
        world.herder.task_state(TASK)
    assert world.herder.topics("c").topics == []


def test_a_plain_restart_is_one_of_the_connector(world: World) -> None:
    world.create()
    world.run(world.herder.restart("c"))
    assert world.kinds() == ["StopConnector", "StartConnector", "DivideWork"]


@pytest.mark.parametrize(
    ("only_failed", "include_tasks", "kinds", "states"),
    [
        (True, True, ["StopTasks", "StartTask"], ["RUNNING", "RESTARTING"]),
        (False, True, ["StopConnector", "StopTasks", "StartConnector", "DivideWork", "StartTask",
                       "StartTask"], ["RESTARTING", "RESTARTING"]),
        (True, False, [], ["RUNNING", "FAILED"]),
    ],
)  # fmt: skip
def test_what_has_failed_restarts(
    world: World, only_failed: bool, include_tasks: bool, kinds: list[str], states: list[str]
) -> None:
    world.task_count = 2
    world.create()
    world.herder.task_is(TaskId("c", 1), State.FAILED, "Traceback")
    request = RestartRequest("c", only_failed, include_tasks)
    answer = world.run(world.herder.restart_parts(request))
    assert world.kinds() == kinds
    assert [each.state for each in answer.tasks] == states


def test_a_failed_connector_restarts(world: World) -> None:
    world.create()
    world.herder.connector_is("c", State.FAILED, "Traceback")
    answer = world.run(world.herder.restart_parts(RestartRequest("c", True, False)))
    assert answer.connector.state == "RESTARTING"
    assert world.herder.state("c").connector.state == "RUNNING"


def test_one_task_restarts(world: World) -> None:
    world.create()
    world.run(world.herder.restart_task(TASK))
    assert world.effects[0] == StopTasks([TASK])
    world.results[StartTask] = False
    with pytest.raises(ConnectException, match=r"^Failed to start task: c-0$"):
        world.run(world.herder.restart_task(TASK))


def test_offsets_are_read(world: World) -> None:
    world.create()
    assert world.run(world.herder.offsets("c")).offsets == [ConnectorOffset({"f": "a"}, {"p": 1})]


def test_offsets_are_altered_only_while_the_connector_is_stopped(world: World) -> None:
    world.create()
    with pytest.raises(BadRequest, match="must be in the STOPPED state"):
        world.run(world.herder.alter_offsets("c", None))
    world.run(world.herder.stop("c"))
    message = world.run(world.herder.alter_offsets("c", [ConnectorOffset({"f": "a"}, {"p": 5})]))
    assert world.effects == [AlterSourceOffsets("c", CONFIG, [({"f": "a"}, {"p": 5})])]
    assert message.message == "The offsets for this connector have been altered successfully"


def test_offsets_of_a_sink_are_those_of_its_group(world: World) -> None:
    config = {**CONFIG, "connector.class": "sink"}
    world.create(config, TargetState.STOPPED)
    world.results[AlterSinkOffsets] = False
    offsets = [
        ConnectorOffset({"kafka_topic": "t", "kafka_partition": "3"}, {"kafka_offset": "7"}),
        ConnectorOffset({"kafka_topic": "t", "kafka_partition": 4}, None),
    ]
    message = world.run(world.herder.alter_offsets("c", offsets))
    wanted = {TopicPartition("t", 3): 7, TopicPartition("t", 4): None}
    assert world.effects == [AlterSinkOffsets("c", config, wanted)]
    assert message.message.startswith("The Connect framework-managed offsets")
    reset = world.run(world.herder.alter_offsets("c", None))
    assert "have been reset successfully. However" in reset.message


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda herder: herder.info("x"), "Connector x not found"),
        (lambda herder: herder.tasks("x"), "Connector x not found"),
        (lambda herder: herder.state("x"), "No status found for connector x"),
        (lambda herder: herder.task_state(TaskId("x", 1)), "No status found for task x-1"),
        (lambda herder: herder.check_known("x"), "Unknown connector x"),
    ],
)
def test_what_does_not_exist_is_not_found(
    world: World, ask: Callable[[Herder], object], message: str
) -> None:
    with pytest.raises(NotFound, match=f"^{message}$"):
        ask(world.herder)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (lambda herder: herder.patch("x", {}), "Connector x not found"),
        (lambda herder: herder.delete("x"), "Connector x not found"),
        (lambda herder: herder.stop("x"), "Connector x not found"),
        (lambda herder: herder.restart("x"), "Connector x not found"),
        (lambda herder: herder.restart_parts(RestartRequest("x", True)), "Unknown connector: x"),
        (lambda herder: herder.restart_task(TaskId("x", 0)), "Connector x not found"),
        (lambda herder: herder.restart_task(TaskId("c", 9)), "Task c-9 not found"),
        (lambda herder: herder.offsets("x"), "Connector x not found"),
        (lambda herder: herder.alter_offsets("x", None), "Connector x not found"),
        (lambda herder: herder.pause("x"), "Unknown connector x"),
        (lambda herder: herder.resume("x"), "Unknown connector x"),
    ],
)
def test_nothing_is_done_about_what_does_not_exist(
    world: World, operation: Callable[[Herder], Operation[Any]], message: str
) -> None:
    world.create()
    with pytest.raises(NotFound, match=f"^{message}$"):
        world.run(operation(world.herder))
    assert world.effects == []


def test_work_of_a_connector_that_is_gone_is_not_divided(world: World) -> None:
    world.run(world.herder.divide("x"))
    assert world.effects == []
