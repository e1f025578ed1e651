"""The task of HttpSource and a real server, without a worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SourceRecord
from consumers.connect.http_source.http_source import HttpSourceTask
from consumers.connect.tasks.source_task_thread import TaskSourceContext
from tests.consumers.connect.http.http_server import HttpServer

_ROUNDS = 100


class StoredOffset:
    """An OffsetReader with the same offset for each partition."""

    def __init__(self, offset: dict[str, Any] | None) -> None:
        self._offset = offset

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._offset

    def offsets(
        self, partitions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Mapping[str, Any], dict[str, Any] | None]]:
        return [(each, self._offset) for each in partitions]


MakeTask = Callable[..., HttpSourceTask]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with HttpServer().running() as server:
        yield server


@pytest.fixture
def make_task(server: HttpServer) -> Iterator[MakeTask]:
    made: list[HttpSourceTask] = []

    def make(offset: dict[str, Any] | None = None, **more: str) -> HttpSourceTask:
        properties = {
            "name": "in",
            "http.url": f"{server.url}/list?since=${{offset}}",
            "kafka.topic": "t",
            "offset.pointer": "/n",
            "poll.interval.ms": "10",
            "retry.backoff.ms": "10",
            **{name.replace("_", "."): text for name, text in more.items()},
        }
        task = HttpSourceTask()
        task.context = TaskSourceContext(properties, StoredOffset(offset))
        task.start(properties)
        made.append(task)
        return task

    yield make
    for each in made:
        each.stop()


def next_records(task: HttpSourceTask) -> Sequence[SourceRecord]:
    """Return the records of the next answer that has some."""
    for _ in range(_ROUNDS):
        found = task.poll()
        if found:
            return found
    raise AssertionError("no records")


def test_only_the_last_record_of_an_answer_has_its_offset(
    make_task: MakeTask, server: HttpServer
) -> None:
    # Whoever is killed between two of them asks for all of them again.
    server.answer = lambda _: (200, json.dumps([{"n": 5}, {"n": 6}, {"n": 7}]))
    records = next_records(make_task({"offset": 4}))
    offsets = [(each.source_offset or {}).get("offset") for each in records]
    assert offsets[:2] == [4, 4]
    assert offsets[2] not in (4, None)


def test_an_answer_of_many_pieces_is_bounded_as_a_whole(
    make_task: MakeTask, server: HttpServer
) -> None:
    server.answer = lambda _: (200, "[" + " " * 300_000 + "]")
    task = make_task(response_bytes_max="200000")
    with pytest.raises(ConnectException, match="more than 200000 bytes"):
        next_records(task)


def test_a_server_is_not_asked_before_the_time_that_it_names(
    make_task: MakeTask, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    server.answer = lambda _: (503, "busy", {"Retry-After": "60"})
    task = make_task()
    for _ in range(_ROUNDS):
        assert not task.poll()
        if "asked again" in caplog.text:
            break
    assert "answered 503 Service Unavailable; asked again in 60 s" in caplog.text
    assert len(server.seen) == 1


def test_another_offset_is_asked_for_without_the_tags_of_the_one_before(
    make_task: MakeTask, server: HttpServer
) -> None:
    server.answer = lambda _: (
        *(200, json.dumps([{"n": len(server.seen)}])),
        {"ETag": f'"{len(server.seen)}"'},
    )
    task = make_task({"offset": 0})
    next_records(task)
    next_records(task)
    assert [each.headers.get("If-None-Match") for each in server.seen] == [None, None]
