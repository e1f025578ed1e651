"""Several workers that share connectors, on a real broker: they come, go, and are killed."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from consumers.connect.worker.plugin_table import waylog_version
from tests.consumers.connect.connect_process import (
    DistributedProcess,
    Topic,
    create_compacted,
    create_topic,
    group_properties,
    lines_of,
    places,
    produce,
    wait_until,
)
from tests.contract.broker_process import BrokerProcess
from waylog.kafka.ranges.topic_reader import read_topic

pytestmark = pytest.mark.early

MakeGroup = Callable[..., list[DistributedProcess]]
SOURCE = "FileStreamSource"
SINK = "FileStreamSink"


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def source(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": SOURCE, "file": str(file), "topic": topic}


def sink(file: Path, topic: str) -> dict[str, str]:
    return {"connector.class": SINK, "file": str(file), "topics": topic}


@pytest.fixture(scope="module")
def running_group(
    servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[DistributedProcess]]:
    """Three workers for the tests that stop none; `trio` gives them without connectors."""
    properties, workers = group_properties(unique("trio")), []
    for _ in range(3):
        workers.append(DistributedProcess(tmp_path_factory.mktemp("trio"), servers, **properties))
    try:
        start_all(workers)
        yield workers
    finally:
        ended = [each.stop() for each in workers]
    assert ended == [0, 0, 0]
    assert not any("Traceback" in each.output for each in workers)


@pytest.fixture
def trio(running_group: list[DistributedProcess]) -> Iterator[list[DistributedProcess]]:
    """Three workers of one group, whose connectors are gone at the end."""
    yield running_group
    for name in running_group[0].ask("GET", "/connectors")[1]:
        expect(running_group[0], "DELETE", f"/connectors/{name}", 204)


def start_all(workers: Sequence[DistributedProcess]) -> None:
    for each in workers:
        each.start()


def create(worker: DistributedProcess, name: str, config: dict[str, str]) -> None:
    """Create a connector; while the group is in between, try again as clients do."""

    def created() -> bool:
        status, answer = worker.ask("PUT", f"/connectors/{name}/config", config)
        assert status in (200, 201, 409), answer
        return status != 409

    wait_until(created, name, worker)


def running(worker: DistributedProcess, names: Sequence[str]) -> dict[str, str]:
    """Return where the tasks of connectors run, by connector and task; {} if not all do."""
    found: dict[str, str] = {}
    for name in names:
        where = places(worker, name)
        if len(where) < 2:
            return {}
        found |= {f"{name}-{part}": place for part, place in where.items()}
    return found


def spread(
    worker: DistributedProcess, names: Sequence[str], on: Sequence[DistributedProcess]
) -> bool:
    """Tell whether all run, the tasks on each of these workers and on no other."""
    found = running(worker, names)
    tasks = {place for part, place in found.items() if not part.endswith("connector")}
    return (
        bool(found)
        and tasks == {each.worker_id for each in on}
        and set(found.values()) <= {each.worker_id for each in on}
    )


def test_a_worker_alone_runs_connectors(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    (worker,) = make_group(1, unique("alone"))
    worker.start()
    topic, out = unique("lines"), tmp_path / "out.txt"
    (tmp_path / "in.txt").write_text("a\nb\n")
    worker.create("in", source(tmp_path / "in.txt", topic))
    worker.create("out", sink(out, topic))
    wait_until(lambda: lines_of(out) == ["a", "b"], "two lines", worker)
    wait_until(
        lambda: (
            worker.ask("GET", "/connectors/in/offsets")[1]["offsets"]
            == [{"partition": {"filename": str(tmp_path / "in.txt")}, "offset": {"position": 4}}]
        ),
        "the offset",
        worker,
    )
    used = {"in": {"topics": [topic]}}
    wait_until(lambda: worker.ask("GET", "/connectors/in/topics")[1] == used, "its topic", worker)
    assert worker.stop() == 0
    assert "Traceback" not in worker.output
    # All of it is in the topics: a new process goes on.
    with (tmp_path / "in.txt").open("a") as file:
        file.write("c\n")
    worker.start()
    wait_until(lambda: "c" in lines_of(out), "the third line", worker)
    assert lines_of(out) == ["a", "b", "c"]
    assert worker.stop() == 0


def test_three_workers_share_tasks(trio: list[DistributedProcess], tmp_path: Path) -> None:
    workers = trio
    names = [f"s{number}" for number in range(6)]
    for number, name in enumerate(names):
        create(workers[number % 3], name, source(tmp_path / f"{name}.txt", unique("t")))
    wait_until(lambda: spread(workers[0], names, workers), "tasks on all", workers[0])

    def counts() -> list[int]:
        places = list(running(workers[0], names).values())
        return [places.count(each.worker_id) for each in workers]

    wait_until(lambda: counts() == [4, 4, 4], "as many on each", workers[0])
    for each in workers:
        assert sorted(each.ask("GET", "/connectors")[1]) == names


@pytest.mark.long  # tests/consumers/connect/group/test_member.py has how eager workers share
def test_eager_workers_share_tasks_and_take_over(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    one, two = make_group(2, unique("eager"), **{"connect.protocol": "eager"})
    one.start()
    names = [f"s{number}" for number in range(4)]
    topics = {name: unique("t") for name in names}
    for name in names:
        (tmp_path / name).write_text("a\n")
        create(one, name, source(tmp_path / name, topics[name]))
    wait_until(lambda: running(one, names), "all on the first", one)
    two.start()
    wait_until(lambda: spread(one, names, [one, two]), "half on each", one)
    one.kill()
    wait_until(lambda: spread(two, names, [two]), "all on the second", two)
    for name in names:
        with (tmp_path / name).open("a") as file:
            file.write("b\n")
        records = Topic(servers, topics[name])
        wait_until(lambda records=records: "b" in records.values(), name, two)  # type: ignore[misc]
        records.close()
    assert two.stop() == 0
    assert "Traceback" not in one.output + two.output


def test_a_worker_that_joins_or_leaves_does_not_stop_what_stays(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    one, two = make_group(2, unique("cooperative"))
    one.start()
    names = [f"s{number}" for number in range(4)]
    for name in names:
        create(one, name, source(tmp_path / f"{name}.txt", unique("t")))
    wait_until(lambda: running(one, names), "all on the first", one)
    two.start()
    wait_until(lambda: spread(one, names, [one, two]), "half on each", one)
    # A task that has started once has not been stopped and started again.
    starts = [line for line in one.lines if "source task" in line and "has started" in line]
    assert len(starts) == 4
    two.stop()
    wait_until(lambda: spread(one, names, [one]), "all on the first again", one)
    # States are told before their lines are read.
    assert one.stop() == 0
    starts = [line for line in one.lines if "source task" in line and "has started" in line]
    assert len(starts) == 6


@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.long)])
def test_nothing_is_lost_when_workers_are_killed(
    servers: str, make_group: MakeGroup, tmp_path: Path, kills: int
) -> None:
    topic = unique("killed")
    create_topic(servers, topic, 3)
    workers = make_group(max(kills, 2), unique("killed"), **{"consumer.session.timeout.ms": "6000"})
    start_all(workers)
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    text.touch()
    create(workers[0], "in", {**source(text, topic), "batch.size": "200"})
    create(workers[1], "out", sink(out, topic))
    for number in range(3):
        create(workers[-1], f"more{number}", source(tmp_path / f"more{number}.txt", unique("t")))
    wait_until(lambda: running(workers[0], ["in", "out"]), "both connectors", workers[0])
    sent: set[str] = set()
    with text.open("a") as file:
        for turn, victim in enumerate(workers[:kills]):
            lines = [f"{turn}-{number}" for number in range(20_000)]
            file.write("".join(f"{each}\n" for each in lines))
            file.flush()
            sent.update(lines)
            size = out.stat().st_size if out.exists() else 0
            wait_until(
                lambda before=size: out.exists() and out.stat().st_size > before,  # type: ignore[misc]
                f"lines of turn {turn}",
                victim,
            )
            victim.kill()
            others = [each for each in workers if each is not victim]
            wait_until(
                lambda alive=others: (
                    set(running(alive[0], ["in", "out"]).values())  # type: ignore[misc]
                    <= {each.worker_id for each in alive}
                    and running(alive[0], ["in", "out"])
                ),
                f"the others run what {victim.worker_id} ran",
                others[0],
            )
            victim.start()
    wait_until(lambda: sent <= set(lines_of(out)), "all lines", workers[0])
    # A line that a kill has cut off is one of its own; its record has come again.
    assert len(set(lines_of(out)) - sent) <= 6
    for each in workers:
        assert "Traceback" not in each.output


def test_a_worker_that_was_frozen_gives_its_tasks_up(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    one, two = make_group(2, unique("frozen"))
    one.start()
    two.start()
    text = tmp_path / "in.txt"
    text.write_text("a\n")
    topic = unique("frozen")
    names = ["in", "other"]
    create(one, "in", source(text, topic))
    create(one, "other", source(tmp_path / "other.txt", unique("t")))
    wait_until(lambda: spread(one, names, [one, two]), "both", one)
    wait_until(
        lambda: one.ask("GET", "/connectors/in/offsets")[1].get("offsets"), "the offset", one
    )
    owner = places(one, "in")["0"]
    frozen, other = (one, two) if owner == one.worker_id else (two, one)
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: places(other, "in").get("0") == other.worker_id, "the other one", other)
        with text.open("a") as file:
            file.write("b\n")
        records = Topic(servers, topic)
        wait_until(lambda: records.values() == ["a", "b"], "the second line", other)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    wait_until(lambda: spread(other, names, [one, two]), "both again", frozen)
    with text.open("a") as file:
        file.write("c\n")
    wait_until(lambda: "c" in records.values(), "the third line", other)
    # At least once: the frozen worker may have read a line before it knew.
    assert set(records.values()) == {"a", "b", "c"}
    records.close()


def test_any_worker_answers_and_what_it_may_not_do_is_passed_on(
    servers: str, trio: list[DistributedProcess], tmp_path: Path
) -> None:
    workers = trio
    topic, out = unique("rest"), tmp_path / "out.txt"
    produce(servers, topic, [b"a"])
    for number, each in enumerate(workers):
        body = {"name": f"c{number}", "config": sink(out, topic)}
        expect(each, "POST", "/connectors", 201, body)
        wait_until(lambda each=each, number=number: running(each, [f"c{number}"]),  # type: ignore[misc]
                   "it runs", each)  # fmt: skip
        wait_until(
            lambda each=each, body=body: (  # type: ignore[misc]
                each.ask("POST", "/connectors", body)[1]["message"]
                == f"Connector {body['name']} already exists"
            ),
            "it is told that there is one",
            each,
        )
        assert each.ask("POST", "/connectors", {"name": "x", "config": {"a": "b"}})[0] == 400
    for worker in workers:
        for path in ("/connectors/nobody", "/connectors/nobody/status"):
            assert worker.ask("GET", path)[0] == 404
        for method, path in (
            ("DELETE", "/connectors/nobody"),
            ("POST", "/connectors/nobody/restart"),
            ("POST", "/connectors/nobody/tasks/0/restart"),
            ("PUT", "/connectors/nobody/pause"),
            ("PUT", "/connectors/nobody/stop"),
        ):
            assert worker.ask(method, path)[0] == 404, path
    # Each task is on another worker: some of these requests are passed on, whoever leads.
    for worker, name in zip(workers, ("c1", "c2", "c0"), strict=True):
        expect(worker, "POST", f"/connectors/{name}/restart", 204)
        expect(worker, "POST", f"/connectors/{name}/tasks/0/restart", 204)
        expect(worker, "POST", f"/connectors/{name}/restart?includeTasks=true", 202)
        await_states(worker, name, "RUNNING", "RUNNING")
        expect(worker, "PUT", f"/connectors/{name}/pause", 202)
        await_states(worker, name, "PAUSED", "PAUSED")
        expect(worker, "PUT", f"/connectors/{name}/resume", 202)
        await_states(worker, name, "RUNNING", "RUNNING")
    last = workers[2]
    expect(last, "PATCH", "/connectors/c0/config", 200, {"errors.tolerance": "all"})
    wait_until(
        lambda: workers[0].ask("GET", "/connectors/c0/config")[1].get("errors.tolerance") == "all",
        "the first worker has read it",
        workers[0],
    )
    await_states(last, "c0", "RUNNING", "RUNNING")
    expect(workers[0], "PUT", "/connectors/c0/stop", 204)
    await_states(workers[0], "c0", "STOPPED")
    for each in workers:
        wait_until(
            lambda each=each: each.ask("DELETE", "/connectors/c0/offsets")[0] == 200,  # type: ignore[misc]
            "offsets are reset",
            each,
        )
        assert each.ask("GET", "/connectors/c0/offsets")[1] == {"offsets": []}
    expect(last, "DELETE", "/connectors/c0", 204)
    for each in workers:
        wait_until(lambda each=each: each.ask("GET", "/connectors/c0/status")[0] == 404,  # type: ignore[misc]
                   "it is gone", each)  # fmt: skip
    assert last.ask("GET", "/connectors/c1?forward=false")[0] == 200


def expect(
    worker: DistributedProcess, method: str, path: str, wanted: int, body: Any = None
) -> None:
    """Ask until the answer is no conflict, as Kafka's clients have to; check its status."""

    def answered() -> bool:
        status, answer = worker.ask(method, path, body)
        assert status in (wanted, 409), (path, status, answer)
        return status == wanted

    wait_until(answered, f"{method} {path}", worker)


def await_states(worker: DistributedProcess, name: str, *states: str) -> None:
    def found() -> list[str]:
        status, answer = worker.ask("GET", f"/connectors/{name}/status")
        if status != 200:
            return []
        return [answer["connector"]["state"], *(each["state"] for each in answer["tasks"])]

    wait_until(lambda: found() == list(states), f"{name} is {states}, not {found()}", worker)


def test_a_request_takes_two_steps_at_most(trio: list[DistributedProcess], tmp_path: Path) -> None:
    body = {"name": "c", "config": source(tmp_path / "in.txt", unique("t"))}
    answers: list[int] = []

    def done() -> bool:
        answers[:] = [each.ask("POST", "/connectors?forward=false", body)[0] for each in trio]
        return 201 in answers

    # The leader does it, whoever that is, and the others do not pass it on.
    wait_until(done, "the leader has done it", trio[0])
    assert sorted(answers) == [201, 409, 409]


def test_only_workers_may_write_tasks(trio: list[DistributedProcess], tmp_path: Path) -> None:
    worker = trio[0]
    create(worker, "c", source(tmp_path / "in.txt", unique("t")))
    wait_until(lambda: running(worker, ["c"]), "it runs", worker)
    for method, path in (("POST", "/connectors/c/tasks"), ("PUT", "/connectors/c/fence")):
        status, answer = worker.ask(method, path, [])
        assert (status, answer["message"]) == (400, "Internal request missing required signature")
    assert running(worker, ["c"])


def test_levels_of_loggers_are_set_on_all_workers(trio: list[DistributedProcess]) -> None:
    workers = trio
    path = "/admin/loggers/consumers.connect.file"
    assert workers[1].ask("PUT", f"{path}?scope=cluster", {"level": "DEBUG"}) == (204, None)
    for each in workers:
        wait_until(
            lambda each=each: each.ask("GET", path)[1].get("level") == "DEBUG",  # type: ignore[misc]
            "the level",
            each,
        )
    assert workers[0].ask("PUT", path, {"level": "WARN"})[0] == 200
    assert workers[1].ask("GET", path)[1]["level"] == "DEBUG"


def test_a_topic_that_is_not_compacted_is_refused(servers: str, make_group: MakeGroup) -> None:
    group = unique("policy")
    (worker,) = make_group(1, group)
    create_topic(servers, f"{group}-offset", 3)
    worker.start(is_ready=False)
    assert worker.wait() == 1
    assert (
        f"Topic '{group}-offset' supplied via the 'offset.storage.topic' property is required to "
        "have 'cleanup.policy=compact'" in worker.output
    )
    assert "Traceback" not in worker.output


def test_what_workers_share_is_in_kafkas_form(
    servers: str, trio: list[DistributedProcess], tmp_path: Path
) -> None:
    worker, group = trio[0], trio[0].properties["group.id"]
    text, topic = tmp_path / "in.txt", unique("t")
    text.write_text("a\n")
    create(worker, "in", source(text, topic))
    wait_until(
        lambda: worker.ask("GET", "/connectors/in/offsets")[1].get("offsets"), "offsets", worker
    )
    expect(worker, "PUT", "/connectors/in/pause", 202)
    await_states(worker, "in", "PAUSED", "PAUSED")
    config = newest(servers, f"{group}-config")
    properties = {"name": "in", **source(text, topic)}
    assert config["connector-in"] == {"properties": properties}
    assert config["task-in-0"]["properties"]["file"] == str(text)
    assert "task.class" in config["task-in-0"]["properties"]
    assert config["commit-in"] == {"tasks": 1}
    assert config["target-state-in"] == {"state": "PAUSED", "state.v2": "PAUSED"}
    assert config["session-key"].keys() == {"key", "algorithm", "creation-timestamp"}
    key = json.dumps(["in", {"filename": str(text)}], separators=(",", ":"))
    assert newest(servers, f"{group}-offset")[key] == {"position": 2}
    states = newest(servers, f"{group}-status")
    owner = worker.ask("GET", "/connectors/in/status")[1]["tasks"][0]["worker_id"]
    assert states["status-task-in-0"] == {
        "state": "PAUSED", "trace": None, "worker_id": owner, "generation":
        states["status-task-in-0"]["generation"], "version": waylog_version(),
    }  # fmt: skip
    assert states[f"status-topic-{topic}:connector-in"]["topic"]["name"] == topic


def newest(servers: str, topic: str) -> dict[str, Any]:
    """Return the newest value of each key of a topic."""
    found: dict[str, Any] = {}
    for record in read_topic(servers, topic):
        value = record.value()
        found[(record.key() or b"").decode()] = None if value is None else json.loads(value)
    return found


def test_a_worker_goes_on_with_what_kafka_has_written(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    group = unique("written")
    (worker,) = make_group(1, group)
    worker.start()
    assert worker.stop() == 0
    text, topic = tmp_path / "in.txt", unique("t")
    text.write_text("a\nb\n")
    properties = {"name": "in", "tasks.max": "1", **source(text, topic)}
    task = {**properties, "task.class": "org.apache.kafka.connect.file.FileStreamSourceTask"}
    produce(servers, f"{group}-config", [compact({"properties": properties})], key=b"connector-in")
    produce(servers, f"{group}-config", [compact({"properties": task})], key=b"task-in-0")
    produce(servers, f"{group}-config", [b'{"tasks":1}'], key=b"commit-in")
    produce(servers, f"{group}-config", [b"no json"], key=b"connector-damaged")
    produce(
        servers,
        f"{group}-offset",
        [b'{"position":2}'],
        key=compact(["in", {"filename": str(text)}]),
    )
    worker.start()
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["b"], "what comes after the offset", worker)
    records.close()
    assert worker.ask("GET", "/connectors")[1] == ["in"]
    assert "key b'connector-damaged' is left out" in worker.output


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.long
def test_a_worker_that_loses_the_cluster_waits_and_comes_back(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = BrokerProcess(folder, auto_create_topics_enable="true")
    servers = broker.start()
    one, two = make_group(2, unique("lost"), **{"bootstrap.servers": servers})
    start_all([one, two])
    text, topic = tmp_path / "in.txt", unique("t")
    text.write_text("a\n")
    create(one, "in", source(text, topic))
    create(two, "other", source(tmp_path / "other.txt", unique("t")))
    wait_until(lambda: spread(one, ["in", "other"], [one, two]), "both", one)
    wait_until(
        lambda: one.ask("GET", "/connectors/in/offsets")[1].get("offsets"), "the offset", one
    )
    broker.stop()
    for each in (one, two):
        each.wait_for("the coordinator has not answered for .* this worker stops")
    with text.open("a") as file:
        file.write("b\n")
    broker.start()
    wait_until(lambda: spread(two, ["in", "other"], [one, two]), "both again", two)
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["a", "b"], "the second line", one)
    records.close()
    for each in (one, two):
        assert each.stop() == 0
        assert "Traceback" not in each.output
    broker.stop()


def test_a_worker_that_its_group_does_not_take_ends(servers: str, make_group: MakeGroup) -> None:
    # Brokers allow sessions of half an hour at most.
    (worker,) = make_group(1, unique("session"), **{"session.timeout.ms": "10000000"})
    worker.start(is_ready=False)
    assert worker.wait() == 1
    assert "the worker's place in its group failed; this process ends" in worker.output
    assert "NotAMember: the group does not take this worker: " in worker.output


@pytest.mark.parametrize("first", ["this", pytest.param("other", marks=pytest.mark.long)])
def test_a_worker_with_another_topic_of_configurations_is_named(
    servers: str, make_group: MakeGroup, tmp_path: Path, first: str
) -> None:
    """Whichever of both leads: the one that came first does."""
    group, topic = unique("mixed"), unique("other")
    this, other = make_group(2, group)
    other.properties["config.storage.topic"] = topic
    # The other topic has more records.
    create_compacted(servers, topic)
    produce(servers, topic, [compact({"properties": {"name": "x"}})] * 9, key=b"connector-x")
    if first == "this":
        this.start()
        other.start(is_ready=False)
    else:
        other.start()
        this.start(is_ready=False)
    said = this.wait_for(r"worker (\S+) has read configurations up to offset \d+, and topic (\S+)")
    assert said[2] == f"{group}-config"
    assert f"group {group} need the same config.storage.topic" in said.string
    if first == "other":
        assert said[1].startswith(other.url)
    other.stop()
    if first == "other":
        this.url = this.wait_for(r"connect worker ready (\S+)")[1]
    create(this, "c", source(tmp_path / "in.txt", unique("t")))
    wait_until(lambda: running(this, ["c"]), "it runs", this)
