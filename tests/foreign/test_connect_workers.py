"""Apache Kafka's distributed worker beside ours: they take over from one another, answer alike."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumers.connect.worker.plugin_table import waylog_version
from tests.apache_kafka import VERSION
from tests.consumers.connect.connect_process import DistributedProcess, Topic, group_properties
from tests.foreign.test_connect import _lines, connect_jars, eventually, worker

pytestmark = [pytest.mark.kafka]

#: Where the answers differ; anything else that differs fails the test.
DIFFERENCES = {
    "POST /connectors/unknown class": "Kafka lists the connectors that there are as Java objects",
    "GET /connector-plugins": "the connectors of each",
    "GET /connector-plugins?connectorsOnly=false": "the classes of each",
    "GET /admin/loggers": "loggers have Java's or Python's names",
    "GET /admin/loggers/root": "the same",
    "PUT /admin/loggers/root": "the same",
    "GET /": "commit",
    "GET /admin/loggers/no.such.logger": "loggers that nobody has made",
    "PUT /admin/loggers/root (42)": "Kafka with SLF4J's simple logger sets no levels",
    "PUT /admin/loggers/some.logger?scope=cluster": "the same",
    "PATCH /connectors/c/offsets (13)": "what is wrong with JSON is told in Java's words",
    "POST /connectors (28)": "the same",
    "POST /connectors (29)": "the same",
    "PUT /connector-plugins/FileStreamSink/config/validate": "Kafka answers 500 for no range",
}
#: Properties that only our connectors have.
OURS = ("line.bytes.max",)


@contextmanager
def our_worker(
    folder: Path, bootstrap_servers: str, group: str, **properties: str
) -> Iterator[DistributedProcess]:
    """Run a worker of ours until the block ends, when it is killed with SIGKILL.

    `properties` are changed ones, given by `**` since they have dots.
    """
    folder = folder / f"ours-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    process = DistributedProcess(folder, bootstrap_servers, **group_properties(group), **properties)
    try:
        process.start()
        yield process
    finally:
        process.kill()


def runs(ours: DistributedProcess, name: str) -> bool:
    status, found = ours.ask("GET", f"/connectors/{name}/status")
    if status != 200:
        return False
    states = [found["connector"]["state"], *(each["state"] for each in found["tasks"])]
    assert "FAILED" not in states, found
    return states == ["RUNNING", "RUNNING"]


def test_a_worker_of_kafka_and_ours_take_over_from_one_another(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    connect_jars()
    group = f"connect-{uuid.uuid4().hex[:8]}"
    source, target = tmp_path / "source", tmp_path / "target"
    connectors = {
        "source": {"connector.class": "FileStreamSource", "file": str(source), "topic": group},
        "sink": {"connector.class": "FileStreamSink", "file": str(target), "topics": group},
    }
    wanted: list[str] = []

    def add(word: str) -> None:
        lines = [f"{word} {number}" for number in range(500)]
        wanted.extend(lines)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    add("theirs")
    plain = {"exactly.once.source.support": "disabled"}
    with worker(tmp_path, bootstrap_servers, group, **plain) as theirs:
        for name, config in connectors.items():
            path = f"/connectors/{name}/config"
            put = {"tasks.max": "1", **config}
            eventually(lambda: theirs.call("PUT", path, put), name)  # noqa: B023
            eventually(lambda: theirs.runs(name), name)  # noqa: B023
        eventually(lambda: len(_lines(target)) >= 500, "lines of Kafka's worker")
        eventually(
            lambda: (theirs.call("GET", "/connectors/source/offsets") or {}).get("offsets"),
            "the source's position",
        )
    add("ours")
    with our_worker(tmp_path, bootstrap_servers, group) as ours:
        for name in connectors:
            eventually(lambda: runs(ours, name), name)  # noqa: B023
        eventually(lambda: wanted[-1] in _lines(target), "lines of our worker")
        position = [
            {"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}
        ]
        eventually(
            lambda: ours.ask("GET", "/connectors/source/offsets")[1]["offsets"] == position,
            "our position",
        )
        assert ours.ask("GET", "/connectors/source/config")[1]["file"] == str(source)
    add("theirs again")
    with worker(tmp_path, bootstrap_servers, group, **plain) as theirs:
        for name in connectors:
            eventually(lambda: theirs.runs(name), name)  # noqa: B023
        eventually(lambda: wanted[-1] in _lines(target), "lines of Kafka's worker again")
    assert set(_lines(target)) == set(wanted)


def test_exactly_once_sources_move_between_workers_of_both_kinds(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    connect_jars()
    group, source = f"connect-{uuid.uuid4().hex[:8]}", tmp_path / "source"
    enabled = {"exactly.once.source.support": "enabled"}
    config = {
        "connector.class": "FileStreamSource", "tasks.max": "1", "topic": group,
        "file": str(source), "exactly.once.support": "required", "batch.size": "50",
        # A worker that starts waits for the transactions of one that was killed, either of them.
        "producer.override.transaction.timeout.ms": "10000",
    }  # fmt: skip
    records: list[Topic] = []
    wanted: list[str] = []

    def add(word: str) -> None:
        lines = [f"{word} {number}" for number in range(2000)]
        wanted.extend(lines)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def some_have_come(word: str) -> None:
        # A worker is killed amid its lines.
        eventually(
            lambda: any(each.startswith(word) for each in records[0].values()), f"lines of {word}"
        )

    add("theirs")
    with worker(tmp_path, bootstrap_servers, group, **enabled) as theirs:
        eventually(lambda: theirs.call("PUT", "/connectors/in/config", config), "in")
        eventually(lambda: theirs.runs("in"), "in")
        records.append(Topic(bootstrap_servers, group))
        some_have_come("theirs")
    add("ours")
    with our_worker(tmp_path, bootstrap_servers, group, **enabled) as ours:
        eventually(lambda: runs(ours, "in"), "in")
        some_have_come("ours")
    add("again")
    with worker(tmp_path, bootstrap_servers, group, **enabled) as theirs:
        eventually(lambda: theirs.runs("in"), "in")
        eventually(lambda: len(records[0].values()) >= len(wanted), "all lines")
    assert records[0].values() == wanted
    records[0].close()


@pytest.mark.parametrize("protocol", ["sessioned", "eager"])
def test_workers_of_both_kinds_share_a_group(
    bootstrap_servers: str, tmp_path: Path, protocol: str
) -> None:
    connect_jars()
    group = f"connect-{uuid.uuid4().hex[:8]}"
    # With an eager one all are: the other one offers that, too.
    plain = {"connect.protocol": protocol} | {
        "exactly.once.source.support": "disabled",
        "scheduled.rebalance.max.delay.ms": "1000",
    }
    names = [f"s{number}" for number in range(4)]
    with (
        worker(tmp_path, bootstrap_servers, group, **plain) as theirs,
        our_worker(tmp_path, bootstrap_servers, group) as ours,
    ):
        eventually(lambda: theirs.call("GET", "/connectors") is not None, "Kafka's worker")
        for number, name in enumerate(names):
            put = {
                "connector.class": "FileStreamSource", "tasks.max": "1", "topic": group,
                "file": str(tmp_path / name),
            }  # fmt: skip
            (tmp_path / name).touch()
            path = f"/connectors/{name}/config"
            if number % 2:
                eventually(lambda: theirs.call("PUT", path, put), name)  # noqa: B023
            else:
                eventually(
                    lambda: ours.ask("PUT", path, put)[0] in (200, 201),  # noqa: B023
                    name,
                )

        def places() -> set[str]:
            found = [ours.ask("GET", f"/connectors/{each}/status")[1] for each in names]
            return {
                task["worker_id"]
                for each in found
                for task in each.get("tasks", ())
                if task["state"] == "RUNNING"
            }

        eventually(lambda: len(places()) == 2, "tasks on both")
        for name in names:
            eventually(lambda: runs(ours, name), name)  # noqa: B023
            eventually(lambda: theirs.runs(name), name)  # noqa: B023


#: Calls of the documentation of Kafka's REST interface, and a body.
_CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/connectors", None),
    ("GET", "/connectors?expand=info", None),
    ("GET", "/connectors/c", None),
    ("GET", "/connectors/c/config", None),
    ("GET", "/connectors/c/status", None),
    ("GET", "/connectors/c/tasks", None),
    ("GET", "/connectors/c/tasks/0/status", None),
    ("GET", "/connectors/c/tasks/7/status", None),
    ("GET", "/connectors/c/topics", None),
    ("GET", "/connectors/c/offsets", None),
    ("GET", "/connectors/nobody", None),
    ("GET", "/connectors/nobody/config", None),
    ("GET", "/connectors/nobody/status", None),
    ("GET", "/connectors/nobody/offsets", None),
    ("DELETE", "/connectors/nobody", None),
    ("PUT", "/connectors/nobody/pause", None),
    ("PUT", "/connectors/nobody/stop", None),
    ("POST", "/connectors/nobody/restart", None),
    ("POST", "/connectors/nobody/restart?includeTasks=true", None),
    ("POST", "/connectors/c/tasks/7/restart", None),
    ("PATCH", "/connectors/c/offsets", {"offsets": []}),
    ("DELETE", "/connectors/c/offsets", None),
    ("POST", "/connectors/c/tasks", []),
    ("PUT", "/connectors/c/fence", None),
]
CALLS: dict[str, tuple[str, str, Any]] = {
    **{f"{method} {path}": (method, path, body) for method, path, body in _CALLS},
    "POST /connectors/that exists": (
        "POST",
        "/connectors",
        {"name": "c", "config": {"connector.class": "FileStreamSource", "topic": "t"}},
    ),
    "POST /connectors/unknown class": (
        "POST",
        "/connectors",
        {"name": "d", "config": {"connector.class": "NoSuch"}},
    ),
    "POST /connectors/without a topic": (
        "POST",
        "/connectors",
        {"name": "d", "config": {"connector.class": "FileStreamSink"}},
    ),
}


#: The other calls of that documentation, in an order in which each finds what it needs, and the
#: states of connector and tasks that are waited for before the next one.
_RUNNING, _PAUSED, _STOPPED = ("RUNNING", "RUNNING"), ("PAUSED", "PAUSED"), ("STOPPED",)
STEPS: list[tuple[str, str, Any, tuple[str, ...]]] = [
    ("GET", "/", None, _RUNNING),
    ("GET", "/health", None, _RUNNING),
    ("GET", "/connectors?expand=status&expand=info", None, _RUNNING),
    ("GET", "/connectors?expand=nothing", None, _RUNNING),
    ("PUT", "/connectors/c/pause", None, _PAUSED),
    ("GET", "/connectors/c/status", None, _PAUSED),
    ("PUT", "/connectors/c/resume", None, _RUNNING),
    ("PUT", "/connectors/c/stop", None, _STOPPED),
    ("GET", "/connectors/c/tasks", None, _STOPPED),
    ("GET", "/connectors/c/tasks/0/status", None, _STOPPED),
    ("PATCH", "/connectors/c/offsets", "offsets", _STOPPED),
    ("GET", "/connectors/c/offsets", None, _STOPPED),
    ("PATCH", "/connectors/c/offsets", {"offsets": [{"partition": {"x": 1}, "offset": {"y": 2}}]},
     _STOPPED),
    ("PATCH", "/connectors/c/offsets", {"offsets": "text"}, _STOPPED),
    ("DELETE", "/connectors/c/offsets", None, _STOPPED),
    ("GET", "/connectors/c/offsets", None, _STOPPED),
    ("PUT", "/connectors/c/resume", None, _RUNNING),
    ("PATCH", "/connectors/c/config", {"batch.size": "7"}, _RUNNING),
    ("PATCH", "/connectors/c/config", {"batch.size": None}, _RUNNING),
    ("PATCH", "/connectors/nobody/config", {"batch.size": "7"}, _RUNNING),
    ("PUT", "/connectors/c/config", {"connector.class": "FileStreamSource"}, _RUNNING),
    ("POST", "/connectors/c/restart", None, _RUNNING),
    ("POST", "/connectors/c/restart?onlyFailed=true", None, _RUNNING),
    ("POST", "/connectors/c/restart?includeTasks=true&onlyFailed=true", None, _RUNNING),
    ("POST", "/connectors/c/tasks/0/restart", None, _RUNNING),
    ("PUT", "/connectors/c/topics/reset", None, _RUNNING),
    ("GET", "/connectors/nobody/topics", None, _RUNNING),
    ("POST", "/connectors",
     {"name": "stopped", "initial_state": "STOPPED",
      "config": {"connector.class": "FileStreamSource", "topic": "t", "file": "/no/such"}},
     _RUNNING),
    ("POST", "/connectors",
     {"name": "wrong", "initial_state": "SLEEPING",
      "config": {"connector.class": "FileStreamSource", "topic": "t"}},
     _RUNNING),
    ("POST", "/connectors", "no JSON", _RUNNING),
    ("GET", "/connector-plugins", None, _RUNNING),
    ("GET", "/connector-plugins?connectorsOnly=false", None, _RUNNING),
    ("GET", "/connector-plugins/FileStreamSource/config", None, _RUNNING),
    ("GET", "/connector-plugins/FileStreamSink/config", None, _RUNNING),
    ("GET", "/connector-plugins/NoSuch/config", None, _RUNNING),
    ("PUT", "/connector-plugins/FileStreamSource/config/validate",
     {"name": "v", "connector.class": "FileStreamSource", "topic": "t", "tasks.max": "x"},
     _RUNNING),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate",
     {"name": "v", "connector.class": "FileStreamSink", "topics": "t",
      "connector.plugin.version": "[1", "transforms": "r",
      "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter"},
     _RUNNING),
    ("PUT", "/connector-plugins/FileStreamSink/config/validate",
     {"connector.class": "FileStreamSource"}, _RUNNING),
    ("GET", "/admin/loggers", None, _RUNNING),
    ("GET", "/admin/loggers/root", None, _RUNNING),
    ("GET", "/admin/loggers/no.such.logger", None, _RUNNING),
    ("PUT", "/admin/loggers/root", {"level": "WARN"}, _RUNNING),
    ("PUT", "/admin/loggers/root", {"level": "LOUD"}, _RUNNING),
    ("PUT", "/admin/loggers/root", {}, _RUNNING),
    ("PUT", "/admin/loggers/some.logger?scope=cluster", {"level": "WARN"}, _RUNNING),
    ("GET", "/no/such/path", None, _RUNNING),
    ("POST", "/connectors/c/pause", None, _RUNNING),
    ("DELETE", "/connectors/c", None, ()),
    ("GET", "/connectors/c", None, ()),
    ("DELETE", "/connectors/c", None, ()),
]  # fmt: skip
Ask = Callable[[str, str, Any], tuple[int, Any]]


def walk(ask: Ask, file: Path) -> dict[str, tuple[int, Any]]:
    """Take all steps; return the answers."""
    found: dict[str, tuple[int, Any]] = {}
    offsets = {"offsets": [{"partition": {"filename": str(file)}, "offset": {"position": 0}}]}
    for number, (method, path, body, states) in enumerate(STEPS):
        sent = offsets if body == "offsets" else body
        # While work moves, a worker wants to be asked again.
        status, answer = eventually(
            lambda: each if (each := ask(method, path, sent))[0] != 409 else None,  # noqa: B023
            f"{method} {path}",
        )
        name = f"{method} {path}"
        found[name if name not in found else f"{name} ({number})"] = status, answer
        eventually(lambda: states_of(ask) == states, f"{states} after {name}")  # noqa: B023
    return found


def states_of(ask: Ask) -> tuple[str, ...]:
    status, found = ask("GET", "/connectors/c/status", None)
    if status != 200:
        return ()
    return (found["connector"]["state"], *(each["state"] for each in found["tasks"]))


def test_both_workers_answer_alike(bootstrap_servers: str, tmp_path: Path) -> None:
    connect_jars()
    config = {
        "connector.class": "FileStreamSource", "tasks.max": "1", "topic": "t",
        "file": str(tmp_path / "in"),
    }  # fmt: skip
    (tmp_path / "in").touch()
    answers: list[dict[str, tuple[int, Any]]] = []
    plain = {"exactly.once.source.support": "disabled"}
    groups = [f"connect-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with worker(tmp_path, bootstrap_servers, groups[0], **plain) as theirs:
        eventually(lambda: theirs.call("PUT", "/connectors/c/config", config), "c")
        eventually(lambda: theirs.runs("c"), "c")
        answers.append({name: theirs.answer(*each) for name, each in CALLS.items()})
        answers[-1] |= walk(theirs.answer, tmp_path / "in")
    with our_worker(tmp_path, bootstrap_servers, groups[1]) as ours:
        eventually(lambda: ours.ask("PUT", "/connectors/c/config", config)[0] == 201, "c")
        eventually(lambda: runs(ours, "c"), "c")
        answers.append({name: ours.ask(*each) for name, each in CALLS.items()})
        answers[-1] |= walk(ours.ask, tmp_path / "in")
    differing = {
        call: (normal(answers[0][call]), normal(answers[1][call]))
        for call in answers[0]
        if normal(answers[0][call]) != normal(answers[1][call])
    }
    unexpected = differing.keys() - DIFFERENCES.keys()
    print(json.dumps({call: differing[call] for call in sorted(unexpected)}, indent=1))
    assert unexpected == set()


#: Members that differ between any two workers, texts for people, and the classes of each.
VARIABLE = (
    *("worker_id", "task.class", "version", "documentation", "recommended_values"),
    *("kafka_cluster_id", "last_modified", "trace"),
)


VERSIONS = (VERSION, waylog_version())


def _is_ours(answer: Any) -> bool:
    """Tell whether a part of an answer is about a property that Kafka's connector does not have."""
    definition = answer.get("definition", answer) if isinstance(answer, dict) else {}
    return isinstance(definition, dict) and definition.get("name") in OURS


def normal(answer: Any) -> Any:
    """Return an answer without what two workers cannot have in common."""
    if isinstance(answer, tuple | list):
        return [normal(each) for each in answer if not _is_ours(each)]
    if isinstance(answer, dict):
        return {
            name: "?" if name in VARIABLE or each in VERSIONS else normal(each)
            for name, each in answer.items()
        }
    return answer
