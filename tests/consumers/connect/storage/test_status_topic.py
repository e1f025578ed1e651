"""The topic of states, as Apache Kafka Connect 4.3 writes it."""

from __future__ import annotations

import pytest

from consumers.connect.storage.states import State, Status, TaskId
from consumers.connect.storage.status_topic import (
    StatusTopic,
    TopicForgotten,
    connector_status_record,
    may_write,
    task_status_record,
    topic_record,
    topic_reset_record,
)

TASK = TaskId("in-1", 0)
RUNNING = Status(State.RUNNING, "w:1", generation=4)


def test_states_are_written_in_kafkas_form() -> None:
    assert connector_status_record("in-1", RUNNING) == (
        "status-connector-in-1",
        b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":4,"version":null}',
    )
    failed = Status(State.FAILED, "w:1", "Traceback", 4)
    assert task_status_record(TASK, failed) == (
        "status-task-in-1-0",
        b'{"state":"FAILED","trace":"Traceback","worker_id":"w:1","generation":4,"version":null}',
    )
    assert task_status_record(TASK, None).value is None
    assert topic_record("in-1", "t", 0, 17) == (
        "status-topic-t:connector-in-1",
        b'{"topic":{"name":"t","connector":"in-1","task":0,"discoverTimestamp":17}}',
    )


def test_what_kafka_has_written_is_read() -> None:
    topic = StatusTopic()
    # Before KIP-891 there was no version.
    state = b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":4}'
    topic.read(b"status-connector-in-1", state)
    topic.read(b"status-task-in-1-0", state)
    topic.read(b"status-topic-t:connector-in-1", b'{"topic":{"name":"t","connector":"in-1"}}')
    assert topic.table.connector("in-1") == RUNNING
    assert topic.table.tasks("in-1") == [(TASK, RUNNING)]
    assert topic.table.topics("in-1") == ["t"]
    assert topic.table.connectors() == ["in-1"]
    reset = topic_reset_record("in-1", "t")
    assert topic.read(reset.key.encode(), reset.value) == TopicForgotten("in-1")
    assert topic.table.topics("in-1") == []
    topic.read(b"status-task-in-1-0", None)
    topic.read(b"status-connector-in-1", None)
    assert topic.table.connectors() == []


def test_a_late_end_does_not_hide_that_another_worker_runs_the_task() -> None:
    topic = StatusTopic()
    for status in (
        Status(State.RUNNING, "new:1", generation=5),
        Status(State.UNASSIGNED, "old:1", generation=5),
    ):
        for each in (task_status_record(TASK, status), connector_status_record("in-1", status)):
            topic.read(each.key.encode(), each.value)
    for found in (topic.table.task(TASK), topic.table.connector("in-1")):
        assert found is not None
        assert found.worker_id == "new:1"


def test_a_worker_does_not_write_over_a_newer_generation() -> None:
    newer = Status(State.RUNNING, "new:1", generation=6)
    assert not may_write(Status(State.UNASSIGNED, "old:1", generation=5), newer)
    assert may_write(Status(State.UNASSIGNED, "old:1", generation=6), newer)
    assert may_write(Status(State.UNASSIGNED, "new:1", generation=5), newer)
    assert may_write(Status(State.UNASSIGNED, "old:1", generation=5), None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"status-connector-c", b"{"),
        (b"status-connector-c", b"[]"),
        (b"status-connector-c", b'{"state":"FLYING","worker_id":"w","generation":1}'),
        (b"status-connector-c", b'{"state":"RUNNING","generation":1}'),
        (b"status-task-c-x", b'{"state":"RUNNING","worker_id":"w","generation":1}'),
        (b"status-topic-t", b"{}"),
        (b"else", b"{}"),
        (b"\xff", b"{}"),
        (None, None),
    ],
)
def test_a_damaged_record_is_left_out_with_a_line(
    key: bytes | None, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    topic = StatusTopic()
    assert topic.read(key, value) is None
    assert topic.table.connectors() == []
    assert "is left out" in caplog.text
