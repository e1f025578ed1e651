"""Bodies of requests, and files of connectors."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.answers import ConnectorOffset
from consumers.connect.herder.offset_requests import parse_sink_offsets, source_offsets
from consumers.connect.herder.refusals import BadRequest, Refused
from consumers.connect.herder.requests import (
    CreateRequest,
    create_request,
    named,
    offsets_request,
    parse_connector_file,
    texts,
)
from consumers.connect.herder.task_configs import TooManyTasks, complete_tasks
from consumers.connect.storage.states import TargetState


def test_a_connector_is_named_in_the_body_or_in_its_configuration() -> None:
    wanted = CreateRequest("a", {"name": "a", "x": "1"})
    assert create_request({"name": " a ", "config": {"x": 1}}) == wanted
    assert create_request({"name": "a", "config": {"name": "a", "x": "1"}}) == wanted
    with pytest.raises(BadRequest, match=r"\(b\) doesn't match connector name in the URL \(a\)"):
        create_request({"name": "a", "config": {"name": "b"}})


def test_a_connector_may_have_a_first_state() -> None:
    body = {"name": "a", "config": {}, "initial_state": "stopped"}
    assert create_request(body).target is TargetState.STOPPED


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 500),
        ("x", 500),
        ({"name": "a", "config": {}, "more": 1}, 500),
        ({"name": "a"}, 400),
        ({"name": "a", "config": []}, 500),
        ({"name": "a", "config": {"x": {}}}, 500),
        ({"name": 5, "config": {}}, 500),
        ({"name": "a", "config": {}, "initial_state": "asleep"}, 500),
    ],
)
def test_other_bodies_are_refused(body: Any, status: int) -> None:
    with pytest.raises(Refused) as caught:
        create_request(body)
    assert caught.value.status == status


def test_numbers_and_booleans_are_texts() -> None:
    assert texts({"a": 1, "b": True, "c": None}) == {"a": "1", "b": "true", "c": None}


def test_a_configuration_gets_its_name() -> None:
    assert named("a", {"x": "1"}) == {"x": "1", "name": "a"}


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "x": 1}',
        '{"name": "a", "config": {"x": "1"}}',
        '{"name": "a", "config": {"x": "1", "name": "a"}, "other": 5}',
        "# a comment\nname = a\nx=1\n",
    ],
)
def test_a_file_of_any_form_describes_a_connector(text: str) -> None:
    assert parse_connector_file(text, "file") == CreateRequest("a", {"x": "1", "name": "a"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"x": "1"}', "missing the mandatory 'name' configuration"),
        ('{"config": {"x": "1"}}', "missing the mandatory 'name' configuration"),
        ("x=1", "missing the mandatory 'name' configuration"),
        ("", "missing the mandatory 'name' configuration"),
        ('{"name": "a",', "file: "),
        ('{"name": "a", "config": {"name": "b"}}', "doesn't match"),
        ('{"name": "a", "x": []}', "not a string"),
        ("name=\\u12", "Malformed"),
    ],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConnectException, match=message):
        parse_connector_file(text, "file")


def test_offsets_are_named_with_their_partitions() -> None:
    body = {"offsets": [{"partition": {"f": "a"}, "offset": {"p": 1}}, {"partition": {"f": "b"}}]}
    assert source_offsets(offsets_request(body)) == [({"f": "a"}, {"p": 1}), ({"f": "b"}, None)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"offsets": []}, 400),
        ({"offsets": {}}, 500),
        ({"offsets": [{"partition": 5}]}, 500),
        ({"more": []}, 500),
        (5, 500),
    ],
)
def test_other_offsets_are_refused(body: Any, status: int) -> None:
    with pytest.raises(Refused) as caught:
        offsets_request(body)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("partition", "offset"),
    [
        (None, {"kafka_offset": 1}),
        ({"kafka_topic": "t"}, {"kafka_offset": 1}),
        ({"kafka_topic": None, "kafka_partition": 1}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": None}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": "x"}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": 1.5}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": 1 << 31}, {"kafka_offset": 1}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"position": 1}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": "x"}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": -1}),
        ({"kafka_topic": "t", "kafka_partition": 0}, {"kafka_offset": True}),
    ],
)
def test_offsets_of_a_sink_have_a_form(
    partition: dict[str, Any] | None, offset: dict[str, Any]
) -> None:
    with pytest.raises(BadRequest):
        parse_sink_offsets([ConnectorOffset(partition, offset)])


def test_a_source_partition_is_required() -> None:
    with pytest.raises(BadRequest):
        source_offsets([ConnectorOffset(None, None)])


def test_tasks_get_their_class_and_topics() -> None:
    properties = {"name": "a", "connector.class": "x", "topics": "t", "tasks.max": "2"}
    assert complete_tasks("a", properties, "module.Task", [{"n": "1"}]) == [
        {"n": "1", "task.class": "module.Task", "topics": "t"}
    ]
    with pytest.raises(TooManyTasks, match="generated 3 tasks, which is greater than 2"):
        complete_tasks("a", properties, "module.Task", [{}] * 3)
    lenient = {**properties, "tasks.max.enforce": "false"}
    assert len(complete_tasks("a", lenient, "module.Task", [{}] * 3)) == 3
