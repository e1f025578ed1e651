"""What has been configured, by the changes so far."""

from __future__ import annotations

import pytest

from consumers.connect.storage.configurations import (
    Change,
    ClusterConfig,
    MemoryConfigurationStore,
    PutConnector,
    PutTarget,
    PutTasks,
    RemoveConnector,
    RemoveTasks,
)
from consumers.connect.storage.states import State, Status, TargetState, TaskId
from consumers.connect.storage.statuses import MemoryStatusStore


def configured(*changes: Change) -> ClusterConfig:
    config = ClusterConfig()
    for each in changes:
        config.apply(each)
    return config


def test_a_new_connector_is_to_run_unless_it_is_said_otherwise() -> None:
    config = configured(PutConnector("a", {"x": "1"}), PutConnector("b", {}, TargetState.PAUSED))
    assert config.connectors() == ["a", "b"]
    assert config.properties("a") == {"x": "1"}
    assert config.target("a") is TargetState.STARTED
    assert config.target("b") is TargetState.PAUSED


def test_a_new_configuration_keeps_what_the_connector_is_to_do() -> None:
    config = configured(
        PutConnector("a", {}), PutTarget("a", TargetState.STOPPED), PutConnector("a", {"x": "2"})
    )
    assert config.target("a") is TargetState.STOPPED


def test_tasks_are_those_of_the_present_configuration() -> None:
    tasks = [{"n": "0"}, {"n": "1"}]
    config = configured(PutConnector("a", {"x": "1"}), PutTasks("a", tasks))
    assert config.tasks("a") == [TaskId("a", 0), TaskId("a", 1)]
    assert config.task_properties(TaskId("a", 1)) == {"n": "1"}
    assert config.task_properties(TaskId("a", 2)) is None
    assert config.task_properties(TaskId("a", -1)) is None
    assert config.has_tasks("a", tasks)
    assert not config.has_tasks("a", tasks[:1])
    config.apply(PutConnector("a", {"x": "2"}))
    assert not config.has_tasks("a", tasks)


def test_tasks_and_connectors_are_removed() -> None:
    config = configured(PutConnector("a", {}), PutTasks("a", [{}]), RemoveTasks("a"))
    assert config.tasks("a") == []
    assert not config.has_tasks("a", [])
    config.apply(RemoveConnector("a"))
    assert "a" not in config
    assert config.tasks("a") == []


@pytest.mark.parametrize(
    "change",
    [
        RemoveConnector("x"),
        PutTasks("x", [{}]),
        RemoveTasks("x"),
        PutTarget("x", TargetState.PAUSED),
    ],
)
def test_changes_of_what_does_not_exist_have_no_effect(change: Change) -> None:
    assert configured(change).connectors() == []


async def test_a_store_in_memory_has_a_change_at_once() -> None:
    store = MemoryConfigurationStore()
    await store.write(PutConnector("a", {}))
    assert "a" in store.config


def test_states_and_topics_are_those_of_a_connector() -> None:
    store = MemoryStatusStore()
    running = Status(State.RUNNING, "w:1")
    store.put_connector("a", running)
    store.put_task(TaskId("a", 1), running)
    store.put_task(TaskId("a", 0), running)
    store.put_task(TaskId("b", 0), running)
    store.put_topic("a", "t")
    store.put_topic("a", "t")
    assert [task for task, _ in store.tasks("a")] == [TaskId("a", 0), TaskId("a", 1)]
    assert store.topics("a") == ["t"]
    store.remove_topics("a")
    assert store.topics("a") == []
    store.remove_connector("a")
    assert store.connector("a") is None
    assert store.tasks("a") == []
    assert store.task(TaskId("b", 0)) == running
