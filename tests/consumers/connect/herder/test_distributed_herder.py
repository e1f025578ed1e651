"""What one of several workers does itself, and what it leaves to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from consumers.connect.configuration.connector_validation import ConfigInfos
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.answers import ConnectorOffset, TaskPlace
from consumers.connect.herder.distributed_herder import DistributedHerder
from consumers.connect.herder.effects import (
    AlterSinkOffsets,
    AlterSourceOffsets,
    DivideWork,
    Effect,
    FenceProducers,
    FenceTasks,
    MoveConnector,
    Operation,
    PublishTasks,
    Refresh,
    RequestRestart,
    StartTask,
    StopTasks,
    Validate,
    Write,
)
from consumers.connect.herder.refusals import (
    AlreadyExists,
    BadRequest,
    NotFound,
    RebalanceNeeded,
    WrongWorker,
)
from consumers.connect.herder.restart_plan import RestartRequest
from consumers.connect.storage.configurations import (
    MemoryConfigurationStore,
    PutConnector,
    PutFencing,
    PutTarget,
    PutTasks,
    RemoveTasks,
)
from consumers.connect.storage.states import State, TargetState, TaskId
from consumers.connect.storage.statuses import MemoryStatusStore

T = TypeVar("T")
CONFIG = {"name": "c", "connector.class": "source"}
TASK, OTHER = TaskId("c", 0), TaskId("c", 1)
LEADER, OWNER = "http://leader:1/", "http://owner:1/"


class World:
    """A worker whose group is said; it has the connector and the first of two tasks, or nothing."""

    is_leader = True
    leader_url: str | None = LEADER
    rebalance_expected = False
    has_work = True

    def __init__(self, *, is_exactly_once: bool = False) -> None:
        self.store = MemoryConfigurationStore()
        self.statuses = MemoryStatusStore()
        self.herder = DistributedHerder(
            self.store,
            self.statuses,
            "w:1",
            lambda each: each["connector.class"],
            self,
            is_exactly_once=is_exactly_once,
        )
        self.herder.generation = 7
        self.effects: list[Effect] = []
        self.store.config.apply(PutConnector("c", CONFIG))
        self.store.config.apply(PutTasks("c", [{"n": "0"}, {"n": "1"}]))

    def runs_connector(self, connector: str) -> bool:
        return self.has_work

    def runs_task(self, task: TaskId) -> bool:
        return self.has_work and task == TASK

    def owner_of_connector(self, connector: str) -> str | None:
        return OWNER

    def owner_of_task(self, task: TaskId) -> str | None:
        return OWNER

    def run(self, operation: Operation[T]) -> T:
        self.effects = []
        try:
            effect = next(operation)
            while True:
                self.effects.append(effect)
                effect = operation.send(self._result(effect))
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _result(self, effect: Effect) -> Any:
        match effect:
            case Validate():
                return ConfigInfos("c", 0, [], [])
            case Write():
                self.store.config.apply(effect.change)
            case DivideWork():
                return [{"n": "0"}, {"n": "1"}, {"n": "2"}]
            case StartTask() | MoveConnector() | AlterSourceOffsets() | AlterSinkOffsets():
                return True
        return None

    def kinds(self) -> list[str]:
        return [
            type(each.change if isinstance(each, Write) else each).__name__ for each in self.effects
        ]


@pytest.fixture
def world() -> World:
    return World()


def test_the_leader_stores_a_configuration_and_starts_nothing(world: World) -> None:
    created = world.run(world.herder.put("d", CONFIG, TargetState.PAUSED, may_replace=False))
    assert created.is_new
    assert world.kinds() == ["Validate", "PutConnector"]
    assert world.store.config.target("d") is TargetState.PAUSED
    changed = world.run(world.herder.put("c", {**CONFIG, "x": "1"}, may_replace=True))
    assert changed.info.tasks == [TaskPlace("c", 0), TaskPlace("c", 1)]
    with pytest.raises(AlreadyExists):
        world.run(world.herder.put("c", CONFIG, may_replace=False))
    assert world.run(world.herder.patch("c", {"x": None})).info.config == CONFIG


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (lambda herder: herder.put("c", CONFIG, may_replace=True), "can set connector configs."),
        (lambda herder: herder.patch("c", {}), "can set connector configs."),
        (lambda herder: herder.delete("c"), "can delete connector configs."),
        (lambda herder: herder.stop("c"), "can transition connectors to the STOPPED state."),
        (lambda herder: herder.restart_parts(RestartRequest("c", True)), "restart requests."),
        (lambda herder: herder.alter_offsets("c", None), "external offsets modification requests"),
        (lambda herder: herder.put_tasks("c", []), "may write task configurations."),
        (lambda herder: herder.fence("c"), "may perform zombie fencing."),
    ],
)
def test_what_only_the_leader_does_is_passed_on_to_it(
    world: World, operation: Callable[[DistributedHerder], Operation[Any]], message: str
) -> None:
    world.is_leader = False
    with pytest.raises(WrongWorker, match=f"^Only the leader .*{message}$") as caught:
        world.run(operation(world.herder))
    assert caught.value.url == LEADER
    assert world.kinds() in ([], ["Validate"])


def test_any_worker_pauses_and_resumes(world: World) -> None:
    world.is_leader = False
    world.run(world.herder.pause("c"))
    assert world.effects == [Write(PutTarget("c", TargetState.PAUSED))]
    world.run(world.herder.resume("c"))
    assert world.effects == [Write(PutTarget("c", TargetState.STARTED))]


def test_a_connector_that_stops_loses_its_tasks_first(world: World) -> None:
    world.run(world.herder.stop("c"))
    assert world.effects == [Write(RemoveTasks("c")), Write(PutTarget("c", TargetState.STOPPED))]
    message = world.run(world.herder.alter_offsets("c", [ConnectorOffset({"f": 1}, {"p": 1})]))
    assert "altered successfully" in message.message
    with pytest.raises(BadRequest, match=r"^Cannot submit non-empty set of task configs"):
        world.run(world.herder.put_tasks("c", [{}]))


def test_who_has_it_restarts_it(world: World) -> None:
    world.run(world.herder.restart("c"))
    assert world.kinds() == ["StopConnector", "StartConnector", "DivideWork", "PublishTasks"]
    world.run(world.herder.restart_task(TASK))
    assert world.kinds() == ["StopTasks", "StartTask"]


@pytest.mark.parametrize(("is_leader", "url"), [(True, OWNER), (False, LEADER)])
def test_who_has_it_not_names_the_one_that_has_or_the_leader(
    world: World, is_leader: bool, url: str
) -> None:
    world.has_work, world.is_leader = False, is_leader
    for operation in (world.herder.restart("c"), world.herder.restart_task(TASK)):
        with pytest.raises(WrongWorker) as caught:
            world.run(operation)
        assert caught.value.url == url


def test_nothing_is_restarted_while_work_is_going_to_move(world: World) -> None:
    world.rebalance_expected = True
    for operation in (
        world.herder.restart("c"),
        world.herder.restart_task(TASK),
        world.herder.restart_parts(RestartRequest("c", True)),
        world.herder.alter_offsets("c", None),
    ):
        with pytest.raises(RebalanceNeeded, match=r"^Cannot complete request momentarily due to"):
            world.run(operation)


def test_a_restart_of_parts_is_asked_of_all_and_done_by_each(world: World) -> None:
    world.herder.connector_is("c", State.RUNNING)
    world.herder.task_is(TASK, State.FAILED)
    world.herder.task_is(OTHER, State.FAILED)
    request = RestartRequest("c", only_failed=True, include_tasks=True)
    state = world.run(world.herder.restart_parts(request))
    assert world.effects == [RequestRestart("c", only_failed=True, include_tasks=True)]
    assert state.connector.state == "RUNNING"
    assert [each.state for each in state.tasks] == ["RESTARTING", "RESTARTING"]
    world.run(world.herder.restart_here(request))
    assert world.effects[0] == StopTasks([TASK])
    assert world.kinds()[-1] == "StartTask"
    assert "StartConnector" not in world.kinds()


def test_a_connector_begins_and_its_tasks_are_published(world: World) -> None:
    world.run(world.herder.begin("c"))
    assert world.kinds() == ["StopConnector", "StartConnector", "DivideWork", "PublishTasks"]
    assert isinstance(world.effects[-1], PublishTasks)
    world.store.config.apply(PutTasks("c", world.effects[-1].tasks))
    world.run(world.herder.divide("c"))
    assert world.kinds() == ["DivideWork"]
    world.run(world.herder.begin("gone"))
    assert world.effects == []


def test_only_tasks_that_are_assigned_begin(world: World) -> None:
    world.run(world.herder.begin_tasks([OTHER, TASK, TaskId("c", 9)]))
    assert world.effects[0] == StopTasks([TASK])
    assert world.kinds() == ["StopTasks", "StartTask"]


def test_work_ends_within_a_time(world: World) -> None:
    world.run(world.herder.end(["c"], [OTHER, TASK], generation=7, within_s=1.5))
    assert world.effects[0] == StopTasks([TASK, OTHER], 1.5)
    assert world.kinds() == ["StopTasks", "StopConnector"]


@pytest.mark.parametrize(
    ("target", "has_work", "kinds"),
    [
        (TargetState.PAUSED, True, ["MoveTasks", "MoveConnector"]),
        (TargetState.PAUSED, False, ["MoveTasks"]),
        (TargetState.STARTED, True, ["MoveTasks", "MoveConnector", "DivideWork", "PublishTasks"]),
    ],
)
def test_each_worker_moves_what_it_has(
    world: World, target: TargetState, has_work: bool, kinds: list[str]
) -> None:
    world.has_work = has_work
    world.store.config.apply(PutTarget("c", target))
    world.run(world.herder.move("c"))
    assert world.kinds() == kinds


def test_states_have_the_generation_and_those_of_what_is_gone_are_removed(world: World) -> None:
    world.herder.connector_is("c", State.RUNNING)
    world.herder.task_is(OTHER, State.RUNNING)
    found = world.statuses.task(OTHER)
    assert found is not None
    assert (found.worker_id, found.generation) == ("w:1", 7)
    world.store.config.apply(PutTasks("c", [{}]))
    world.statuses.put_connector("gone", found)
    world.herder.forget_deleted()
    assert world.statuses.connectors() == ["c"]
    assert world.statuses.tasks("c") == []


def test_an_end_is_told_as_one_of_the_generation_in_which_it_was_decided(world: World) -> None:
    world.run(world.herder.end(["c"], [TASK], generation=7))
    world.herder.generation = 9
    world.herder.task_is(TASK, State.UNASSIGNED)
    world.herder.connector_is("c", State.UNASSIGNED)
    found = [world.statuses.task(TASK), world.statuses.connector("c")]
    assert [each.generation for each in found if each is not None] == [7, 7]
    world.run(world.herder.begin_tasks([TASK]))
    world.herder.task_is(TASK, State.UNASSIGNED)
    task = world.statuses.task(TASK)
    assert task is not None
    assert task.generation == 9


def test_the_leader_fences_former_tasks_before_new_ones_begin() -> None:
    world = World(is_exactly_once=True)
    # There were none before: nobody can write.
    world.run(world.herder.begin_tasks([TASK]))
    assert [type(each) for each in world.effects] == [StopTasks, Refresh, Write, StartTask]
    assert world.store.config.fenced_tasks("c") == 2
    world.run(world.herder.begin_tasks([TASK]))
    assert [type(each) for each in world.effects] == [StopTasks, Refresh, StartTask]
    # Work was divided anew: the former two may be anywhere.
    world.store.config.apply(PutTasks("c", [{"n": "0"}]))
    world.run(world.herder.fence("c"))
    assert world.effects == [Refresh(), FenceProducers("c", CONFIG, 2), Write(PutFencing("c", 1))]
    world.store.config.apply(PutTasks("c", [{"n": "1"}]))
    world.run(world.herder.fence("c"))
    # A single task fences the former one itself, by the same id.
    assert world.effects == [Refresh(), Write(PutFencing("c", 1))]


def test_others_ask_the_leader_to_fence() -> None:
    world = World(is_exactly_once=True)
    world.is_leader = False
    world.run(world.herder.begin_tasks([TASK]))
    assert [type(each) for each in world.effects] == [StopTasks, FenceTasks, StartTask]
    with pytest.raises(WrongWorker):
        world.run(world.herder.fence("c"))


def test_fencing_is_refused_without_exactly_once_sources(world: World) -> None:
    with pytest.raises(ConnectException, match="does not have exactly-once source support"):
        world.run(world.herder.fence("c"))
    with pytest.raises(NotFound, match=r"^Connector x not found$"):
        world.run(world.herder.fence("x"))
