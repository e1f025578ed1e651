"""The topic of configurations, byte for byte as Apache Kafka Connect 4.3 writes it."""

from __future__ import annotations

import logging

import pytest

from consumers.connect.storage.config_records import (
    SessionKey,
    logger_record,
    restart_record,
    session_key_record,
    steps_of,
)
from consumers.connect.storage.config_topic import (
    ConfigTopic,
    ConnectorChanged,
    ConnectorRemoved,
    KeyChanged,
    LevelChanged,
    Notice,
    RestartRequested,
    TargetChanged,
    TasksChanged,
)
from consumers.connect.storage.configurations import (
    Change,
    PutConnector,
    PutFencing,
    PutTarget,
    PutTasks,
    RemoveConnector,
    RemoveTasks,
)
from consumers.connect.storage.states import TargetState, TaskId


def written(change: Change) -> list[tuple[str, str | None]]:
    """Return the records of a change as texts."""
    return [
        (each.key, None if each.value is None else each.value.decode())
        for step in steps_of(change)
        for each in step
    ]


def read(*records: tuple[str, str | None]) -> tuple[ConfigTopic, list[Notice]]:
    """Return the state after records, and what they have changed."""
    topic = ConfigTopic()
    notices = [
        topic.read(key.encode(), None if value is None else value.encode(), offset)
        for offset, (key, value) in enumerate(records)
    ]
    return topic, [each for each in notices if each is not None]


# As a worker of Apache Kafka 4.3.1 writes them.
CONNECTOR = (
    "connector-in-1",
    '{"properties":{"connector.class":"FileStreamSource","name":"in-1"}}',
)
TASK_0 = ("task-in-1-0", '{"properties":{"task.class":"T","n":"0"}}')
TASK_1 = ("task-in-1-1", '{"properties":{"task.class":"T","n":"1"}}')
COMMIT_2 = ("commit-in-1", '{"tasks":2}')
PAUSED = ("target-state-in-1", '{"state":"PAUSED","state.v2":"PAUSED"}')
STOPPED = ("target-state-in-1", '{"state":"PAUSED","state.v2":"STOPPED"}')
KEY = (
    "session-key",
    '{"key":"AAECAw==","algorithm":"HmacSHA256","creation-timestamp":1700000000000}',
)


def test_a_connector_is_written_in_kafkas_form() -> None:
    properties = {"connector.class": "FileStreamSource", "name": "in-1"}
    assert written(PutConnector("in-1", properties)) == [CONNECTOR]
    assert written(PutConnector("in-1", properties, TargetState.PAUSED)) == [PAUSED, CONNECTOR]
    assert written(RemoveConnector("in-1")) == [
        ("connector-in-1", None),
        ("target-state-in-1", None),
    ]
    assert written(PutTarget("in-1", TargetState.STOPPED)) == [STOPPED]


def test_tasks_are_written_before_their_commit() -> None:
    change = PutTasks("in-1", [{"task.class": "T", "n": "0"}, {"task.class": "T", "n": "1"}])
    assert written(change) == [TASK_0, TASK_1, COMMIT_2]
    assert len(steps_of(change)) == 2
    assert written(RemoveTasks("in-1")) == [("commit-in-1", '{"tasks":0}')]


def test_other_records_are_written_in_kafkas_form() -> None:
    assert session_key_record(SessionKey(b"\0\1\2\3", "HmacSHA256", 1_700_000_000_000)) == (
        KEY[0], KEY[1].encode()
    )  # fmt: skip
    assert restart_record("c", only_failed=True, include_tasks=False) == (
        "restart-connector-c",
        b'{"include-tasks":false,"only-failed":true}',
    )
    assert logger_record("a.b", "DEBUG") == ("logger-cluster-a.b", b'{"level":"DEBUG"}')


def test_what_kafka_has_written_is_read() -> None:
    topic, notices = read(CONNECTOR, TASK_0, TASK_1, COMMIT_2, KEY, PAUSED)
    assert topic.config.connectors() == ["in-1"]
    assert topic.config.properties("in-1")["connector.class"] == "FileStreamSource"
    assert topic.config.tasks("in-1") == [TaskId("in-1", 0), TaskId("in-1", 1)]
    assert topic.config.task_properties(TaskId("in-1", 1)) == {"task.class": "T", "n": "1"}
    assert topic.config.target("in-1") is TargetState.PAUSED
    assert topic.session_key == SessionKey(b"\0\1\2\3", "HmacSHA256", 1_700_000_000_000)
    assert topic.offset == 6
    assert notices == [
        ConnectorChanged("in-1", is_new=True),
        TasksChanged("in-1"),
        KeyChanged(),
        TargetChanged("in-1"),
    ]


def test_tasks_count_with_their_commit() -> None:
    topic, _ = read(CONNECTOR, TASK_0, TASK_1)
    assert topic.config.tasks("in-1") == []


def test_tasks_of_a_deleted_connector_are_none_of_the_next_one_with_its_name() -> None:
    topic, _ = read(CONNECTOR, TASK_0, TASK_1, (CONNECTOR[0], None), CONNECTOR, COMMIT_2)
    assert topic.config.tasks("in-1") == []


def test_a_commit_that_has_lost_tasks_to_compaction_leaves_none() -> None:
    topic, _ = read(CONNECTOR, TASK_1, COMMIT_2)
    assert topic.config.tasks("in-1") == []
    assert not topic.config.has_tasks("in-1", [])
    # The next complete set counts, and tasks that stood before the commit do not.
    topic.read(TASK_0[0].encode(), TASK_0[1].encode(), 9)
    topic.read(b"commit-in-1", b'{"tasks":1}', 10)
    assert topic.config.tasks("in-1") == [TaskId("in-1", 0)]


def test_tasks_beyond_the_last_are_left_over_by_compaction() -> None:
    topic, _ = read(CONNECTOR, TASK_0, TASK_1, ("commit-in-1", '{"tasks":1}'))
    assert topic.config.tasks("in-1") == [TaskId("in-1", 0)]


def test_tasks_of_a_connector_that_is_gone_are_ignored() -> None:
    topic, notices = read(TASK_0, TASK_1, COMMIT_2)
    assert topic.config.connectors() == []
    assert notices == []


def test_a_target_may_come_before_its_connector() -> None:
    topic, notices = read(STOPPED, CONNECTOR)
    assert topic.config.target("in-1") is TargetState.STOPPED
    assert notices == [ConnectorChanged("in-1", is_new=True)]


def test_a_target_of_an_old_worker_is_read() -> None:
    topic, _ = read(CONNECTOR, ("target-state-in-1", '{"state":"PAUSED"}'))
    assert topic.config.target("in-1") is TargetState.PAUSED


def test_a_deleted_connector_is_gone_and_may_come_again() -> None:
    gone = (("connector-in-1", None), ("target-state-in-1", None))
    topic, notices = read(CONNECTOR, TASK_0, TASK_1, COMMIT_2, STOPPED, *gone, CONNECTOR)
    assert topic.config.target("in-1") is TargetState.STARTED
    assert topic.config.tasks("in-1") == []
    assert notices[-2:] == [ConnectorRemoved("in-1"), ConnectorChanged("in-1", is_new=True)]


def test_requests_to_all_workers_are_read() -> None:
    _, notices = read(
        ("restart-connector-in-1", '{"include-tasks":true,"only-failed":false}'),
        ("logger-cluster-a.b", '{"level":"DEBUG"}'),
    )
    assert notices == [
        RestartRequested("in-1", only_failed=False, include_tasks=True),
        LevelChanged("a.b", "DEBUG"),
    ]


@pytest.mark.parametrize("member", ["task-count", "tasks"])  # the latter of earlier versions
def test_the_number_of_fenced_tasks_is_read(member: str) -> None:
    fenced = ("tasks-fencing-in-1", f'{{"{member}":2}}')
    topic, _ = read(CONNECTOR, TASK_0, TASK_1, COMMIT_2, fenced)
    assert topic.config.fenced_tasks("in-1") == 2
    assert not topic.config.is_fencing_due("in-1")
    assert written(PutFencing("in-1", 2)) == [("tasks-fencing-in-1", '{"task-count":2}')]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connector-x", "{"),
        ("connector-x", "[]"),
        ("connector-x", '{"properties":1}'),
        ("connector-x", '{"properties":{"a":1}}'),
        ("task-x", '{"properties":{}}'),
        ("task-x-y", '{"properties":{}}'),
        ("commit-in-1", '{"tasks":"2"}'),
        ("commit-in-1", '{"tasks":-1}'),
        ("target-state-in-1", '{"state":"FLYING"}'),
        ("session-key", '{"key":"%","algorithm":"HmacSHA256","creation-timestamp":1}'),
        ("session-key", '{"key":"AA=="}'),
        ("session-key", None),
        ("logger-cluster-a", '{"level":1}'),
        ("something-else", "{}"),
        ("", None),
    ],
)
def test_a_damaged_record_is_left_out_with_a_line(
    key: str, value: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        topic, notices = read(CONNECTOR, (key, value), TASK_0, TASK_1, COMMIT_2)
    assert topic.config.tasks("in-1") == [TaskId("in-1", 0), TaskId("in-1", 1)]
    assert notices == [ConnectorChanged("in-1", is_new=True), TasksChanged("in-1")]
    assert len([each for each in caplog.messages if "is left out" in each]) == 1


def test_a_key_or_a_value_that_is_no_text_is_left_out() -> None:
    topic = ConfigTopic()
    assert topic.read(b"\xff", b"{}", 0) is None
    assert topic.read(None, b"{}", 1) is None
    assert topic.read(b"connector-x", b"\xff", 2) is None
    assert topic.offset == 3
