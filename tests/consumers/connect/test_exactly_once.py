"""Exactly-once sources (KIP-618), while their workers are killed."""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.connect import bounded_source
from tests.consumers.connect.connect_process import (
    DistributedProcess,
    Topic,
    create_topic,
    produce,
    wait_until,
)
from tests.consumers.connect.either_kafka import BOTH, running_log
from tests.consumers.connect.test_distributed import create, expect, newest, running
from tests.consumers.connect.test_plugins import install

pytestmark = pytest.mark.early

MakeGroup = Callable[..., list[DistributedProcess]]
ENABLED = {"exactly.once.source.support": "enabled"}


@pytest.fixture(scope="module", params=BOTH)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The bootstrap servers of our broker, or of Apache Kafka."""
    with running_log(request.param, tmp_path_factory.mktemp("broker")) as address:
        yield address


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def file_source(file: Path, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "topic": topic,
        "exactly.once.support": "required",
        **{name.replace("_", "."): text for name, text in more.items()},
    }


@pytest.mark.parametrize("boundary", ["poll", pytest.param("interval", marks=pytest.mark.long)])
def test_each_line_is_there_once_whatever_is_killed(
    servers: str, make_group: MakeGroup, tmp_path: Path, boundary: str
) -> None:
    topic, text = unique("once"), tmp_path / "in.txt"
    create_topic(servers, topic, 3)
    workers = make_group(2, unique("once"), **ENABLED)
    for each in workers:
        each.start()
    text.touch()
    config = file_source(
        text,
        topic,
        batch_size="100",
        transaction_boundary=boundary,
        transaction_boundary_interval_ms="300",
    )
    create(workers[0], "in", config)
    wait_until(lambda: running(workers[0], ["in"]), "it runs", workers[0])
    records = Topic(servers, topic)
    chance, wanted = random.Random(4711), []
    for turn in range(3):
        lines = [f"{turn} {number}" for number in range(5000)]
        wanted += lines
        with text.open("a") as file:
            file.writelines(f"{each}\n" for each in lines)
        some = len(records.read()) + chance.randrange(1, 3000)
        wait_until(lambda some=some: len(records.read()) >= some, "some lines", workers[0])  # type: ignore[misc]
        victim = next(each for each in workers if runs_task(each))
        victim.kill()
        victim.start()
    wait_until(lambda: len(records.read()) >= len(wanted), "all lines", workers[0])
    assert workers[0].stop() == workers[1].stop() == 0
    assert sorted(records.values()) == sorted(wanted)
    assert not any("Traceback" in each.output for each in workers)
    records.close()


def runs_task(worker: DistributedProcess) -> bool:
    _, found = worker.ask("GET", "/connectors/in/status")
    tasks = found.get("tasks") or [{"worker_id": worker.worker_id}]
    return bool(tasks[0]["worker_id"] == worker.worker_id)


def test_a_connector_ends_its_transactions_itself(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    topic, packages = unique("bounded"), tmp_path / "packages"
    aborts, told = tmp_path / "aborts", tmp_path / "told"
    create_topic(servers, topic)
    packages.mkdir()
    shutil.copy(bounded_source.__file__, packages)
    install(packages, "bounded_source", "Bounded = bounded_source:BoundedSource")
    aborts.write_text("5 17 29")
    (worker,) = make_group(1, unique("bounded"), **ENABLED)
    worker.start(python_path=packages)
    config = {
        "connector.class": "Bounded",
        "topic": topic,
        "aborts": str(aborts),
        "told": str(told),
        "exactly.once.support": "required",
        "transaction.boundary": "connector",
    }
    create(worker, "in", config)
    records = Topic(servers, topic)
    void = {3, 4, 5, 15, 16, 17, 27, 28, 29}
    wanted = [str(number) for number in range(30) if number not in void]
    wait_until(lambda: len(records.read()) >= len(wanted), "all numbers", worker)
    # What was aborted does not come again: its offset is stored.
    stored = [{"partition": {"counter": "one"}, "offset": {"next": 30}}]
    wait_until(
        lambda: worker.ask("GET", "/connectors/in/offsets")[1]["offsets"] == stored,
        "the last offset",
        worker,
    )
    expect(worker, "POST", "/connectors/in/restart?includeTasks=true", 202)
    wait_until(lambda: running(worker, ["in"]), "it runs again", worker)
    assert worker.stop() == 0
    assert records.values() == wanted
    # It is told of what is committed alone.
    assert told.read_text().split() == wanted
    records.close()


def test_former_tasks_are_fenced_before_new_ones_begin(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    group, topic, text = unique("fenced"), unique("fenced"), tmp_path / "in.txt"
    one, two = make_group(2, group, **ENABLED)
    one.start()
    two.start()
    text.write_text("a\n")
    create(one, "in", file_source(text, topic))
    wait_until(lambda: running(one, ["in"]), "it runs", one)
    assert newest(servers, f"{group}-config")["tasks-fencing-in"] == {"task-count": 1}
    # Whoever has had two tasks before: both are fenced, by the leader.
    record = {"task-count": 2}
    produce(servers, f"{group}-config", [json.dumps(record).encode()], key=b"tasks-fencing-in")
    expect(two, "PUT", "/connectors/in/config", 200, file_source(text, topic, batch_size="7"))
    wait_until(
        lambda: newest(servers, f"{group}-config")["tasks-fencing-in"] == {"task-count": 1},
        "the new count",
        one,
    )
    with text.open("a") as file:
        file.write("b\n")
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["a", "b"], "both lines once", one)
    records.close()


def test_what_cannot_be_exactly_once_is_refused(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    (worker,) = make_group(1, unique("refused"), **ENABLED)
    (plain,) = make_group(1, unique("plain"), **{"exactly.once.source.support": "preparing"})
    worker.start()
    plain.start()
    without_file = {
        "connector.class": "FileStreamSource",
        "topic": "t",
        "exactly.once.support": "required",
    }
    boundary = file_source(tmp_path / "in.txt", "t", transaction_boundary="connector")
    for asked, config, reason in (
        (worker, without_file, "does not support exactly-once semantics"),
        (worker, boundary, "does not support connector-defined transaction boundaries"),
        (plain, file_source(tmp_path / "in.txt", "t"), "source support enabled"),
    ):
        status, answer = asked.ask("POST", "/connectors", {"name": "in", "config": config})
        assert status == 400
        assert reason in answer["message"]
        path = "/connector-plugins/FileStreamSource/config/validate"
        assert asked.ask("PUT", path, {"name": "in"} | config)[1]["error_count"] == 1
    status, answer = plain.ask(
        "POST", "/connectors", {"name": "in", "config": file_source(tmp_path / "in.txt", "t")
                                | {"exactly.once.support": "requested"}}
    )  # fmt: skip
    assert status == 201
    assert plain.ask("PUT", "/connectors/in/fence")[0] == 400
