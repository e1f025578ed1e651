"""Connectors of other packages: the example of the documentation, and some that misbehave."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.consumers.connect import misbehaving_plugin
from tests.consumers.connect.connect_process import (
    ConnectProcess,
    Topic,
    create_topic,
    lines_of,
    produce,
    wait_until,
)
from tests.consumers.connect.test_standalone import unique
from tests.contract.broker_process import BrokerProcess
from waylog.kafka.clients import consumer_config

pytestmark = pytest.mark.early

ROOT = Path(__file__).parents[3]
MakeWorker = Callable[..., ConnectProcess]


def install(folder: Path, module: str, points: str) -> None:
    """Make a module in a folder one of an installed package with entry points."""
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[waylog.connect]\n{points}\n")


class Misbehaving:
    """A worker with the plugin, and a connector of it."""

    def __init__(self, worker: ConnectProcess, servers: str, folder: Path) -> None:
        self.worker = worker
        self.servers = servers
        self.topic = unique("plugin")
        self.notes_file = folder / "notes.txt"
        self.broken = folder / "broken"
        self.broken.touch()
        create_topic(servers, self.topic)
        packages = folder / "packages"
        packages.mkdir()
        shutil.copy(misbehaving_plugin.__file__, packages)
        install(
            packages,
            "misbehaving_plugin",
            "Bad = misbehaving_plugin:MisbehavingSink\n"
            "Worse = misbehaving_plugin:MisbehavingSource",
        )
        worker.start(python_path=packages)

    def config(self, class_name: str, **more: str) -> dict[str, str]:
        topic = "topics" if class_name == "Bad" else "topic"
        return {
            "connector.class": class_name,
            topic: self.topic,
            # Offsets of other tests are in the groups of connectors with the same name.
            "consumer.override.group.id": self.topic,
            "notes": str(self.notes_file),
            "broken": str(self.broken),
            **{name.replace("__", "."): text for name, text in more.items()},
        }

    def create(self, class_name: str, **more: str) -> None:
        self.worker.create("bad", self.config(class_name, **more))

    def notes(self) -> list[str]:
        return lines_of(self.notes_file)

    def await_attempts(self, count: int) -> None:
        attempts = self.notes_file.with_name(self.notes_file.name + ".attempts")
        wait_until(lambda: len(lines_of(attempts)) >= count, f"{count} attempts", self.worker)

    def await_notes(self, *notes: str) -> None:
        wait_until(lambda: self.notes() == list(notes), f"{notes}, not {self.notes()}", self.worker)


@pytest.fixture
def bad(servers: str, make_worker: MakeWorker, tmp_path: Path) -> Misbehaving:
    return Misbehaving(make_worker(servers), servers, tmp_path)


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit"])
@pytest.mark.parametrize("fails", ["start", "put"])
def test_a_sink_that_raises_fails_and_can_be_restarted(
    bad: Misbehaving, fails: str, kind: str
) -> None:
    bad.create("Bad", fails=fails, kind=kind)
    produce(bad.servers, bad.topic, [b"a"])
    bad.worker.await_states("bad", "RUNNING", "FAILED")
    trace = bad.worker.trace("bad")
    assert kind in trace
    assert "misbehaving_plugin.py" in trace
    bad.worker.wait_for("task bad-0 has failed")
    bad.broken.unlink()
    assert bad.worker.ask("POST", "/connectors/bad/restart?includeTasks=true&onlyFailed=true")[
        0
    ] == 202  # fmt: skip
    wait_until(lambda: "a" in bad.notes(), "the record", bad.worker)
    bad.worker.await_states("bad", "RUNNING", "RUNNING")


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit"])
def test_a_source_that_raises_fails_and_goes_on_where_it_was(bad: Misbehaving, kind: str) -> None:
    bad.broken.unlink()
    bad.create("Worse", fails="poll", kind=kind)
    records = Topic(bad.servers, bad.topic)
    wait_until(lambda: records.values() == ["1", "2", "3"], "three records", bad.worker)
    bad.await_notes("started at 0", "1 at 0", "2 at 1", "3 at 2")
    bad.broken.touch()
    bad.worker.await_states("bad", "RUNNING", "FAILED")
    assert kind in bad.worker.trace("bad")
    bad.broken.unlink()
    assert bad.worker.ask("POST", "/connectors/bad/tasks/0/restart")[0] == 204
    wait_until(lambda: bad.notes()[-1] == "started at 3", "the offset", bad.worker)
    bad.worker.await_states("bad", "RUNNING", "RUNNING")
    records.close()


def test_what_a_source_may_try_again_is_tried_again(bad: Misbehaving) -> None:
    bad.create("Worse", fails="poll", kind="retriable")
    bad.worker.wait_for("task bad-0 polls again: not now")
    assert bad.worker.states("bad") == ["RUNNING", "RUNNING"]
    bad.await_attempts(3)
    bad.broken.unlink()
    records = Topic(bad.servers, bad.topic)
    wait_until(lambda: records.values() == ["1", "2", "3"], "three records", bad.worker)
    records.close()
    assert bad.worker.output.count("bad-0 polls again") == 1  # not a line for each attempt


def test_records_that_a_sink_may_take_later_come_again(bad: Misbehaving) -> None:
    produce(bad.servers, bad.topic, [b"a", b"b"])
    bad.create("Bad", fails="put", kind="retriable", timeout="100")
    bad.worker.wait_for("task bad-0: records come again: not now")
    produce(bad.servers, bad.topic, [b"c"])
    bad.await_attempts(3)
    assert bad.worker.states("bad") == ["RUNNING", "RUNNING"]
    bad.broken.unlink()
    bad.worker.wait_for("task bad-0: records are taken again")
    bad.await_notes("a", "b", "c")
    assert bad.worker.output.count("records come again") == 1  # not a line for each attempt


def test_records_come_again_after_a_flush_that_has_failed(bad: Misbehaving) -> None:
    produce(bad.servers, bad.topic, [b"a", b"b"])
    bad.create("Bad", fails="pre_commit")
    wait_until(lambda: bad.notes()[:4] == ["a", "b", "a", "b"], "both records again", bad.worker)
    assert bad.worker.states("bad") == ["RUNNING", "RUNNING"]
    bad.broken.unlink()
    wait_until(lambda: committed(bad) == [2], "their offset", bad.worker)


def committed(bad: Misbehaving) -> list[int]:
    _, found = bad.worker.ask("GET", "/connectors/bad/offsets")
    return [each["offset"]["kafka_offset"] for each in found["offsets"]]


def test_offsets_that_a_sink_holds_back_are_not_committed(bad: Misbehaving) -> None:
    produce(bad.servers, bad.topic, [b"a"])
    bad.create("Bad", holds_back="yes")
    bad.await_notes("a")
    assert bad.worker.ask("POST", "/connectors/bad/tasks/0/restart")[0] == 204
    bad.await_notes("a", "stopped", "a")
    assert committed(bad) == []


def test_a_sink_may_go_back(bad: Misbehaving) -> None:
    produce(bad.servers, bad.topic, [b"a", b"b"])
    bad.create("Bad", rewinds_at="b")
    bad.await_notes("a", "b", "a", "b")
    wait_until(lambda: committed(bad) == [2], "the offset", bad.worker)


@pytest.mark.parametrize("waits", ["", "yes"])
def test_a_record_that_a_sink_reports_goes_to_the_dead_letters(
    bad: Misbehaving, waits: str
) -> None:
    letters = unique("letters")
    produce(bad.servers, bad.topic, [b"a", b"poison", b"b"], key=b"k")
    more = {
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": letters,
        "errors__deadletterqueue__topic__replication__factor": "1",
        "errors__deadletterqueue__context__headers__enable": "true",
    }
    bad.create("Bad", bad="poison", waits=waits, **more)
    dead = Topic(bad.servers, letters)
    wait_until(lambda: dead.values() == ["poison"], "a dead letter", bad.worker)
    headers = dict(dead.records[0].headers() or ())
    assert dead.records[0].key() == b"k"
    assert headers["__connect.errors.stage"] == b"TASK_PUT"
    assert headers["__connect.errors.exception.message"] == b"I cannot take this"
    dead.close()
    bad.await_notes("a", "b")
    wait_until(lambda: committed(bad) == [3], "the offset", bad.worker)


def test_a_report_ends_a_task_that_tolerates_no_errors(bad: Misbehaving) -> None:
    produce(bad.servers, bad.topic, [b"a", b"poison"])
    bad.create("Bad", bad="poison", errors__log__enable="true")
    bad.worker.await_states("bad", "RUNNING", "FAILED")
    assert "Tolerance exceeded" in bad.worker.trace("bad")


def test_a_dead_letter_topic_that_cannot_be_created_fails_the_task(bad: Misbehaving) -> None:
    # A cluster of one broker has no three replicas.
    bad.create("Bad", errors__deadletterqueue__topic__name=unique("letters"))
    bad.worker.await_states("bad", "RUNNING", "FAILED")
    assert "Could not initialize dead letter queue" in bad.worker.trace("bad")


def test_a_connector_that_does_not_start_is_failed(bad: Misbehaving) -> None:
    config = {"name": "bad", "config": bad.config("Bad", fails="connector")}
    status, answer = bad.worker.ask("POST", "/connectors", config)
    assert (status, answer["error_code"]) == (500, 500)
    assert "Failed to transition connector bad to state STARTED" in answer["message"]
    assert bad.worker.states("bad") == ["FAILED"]
    bad.broken.unlink()
    status, _ = bad.worker.ask("POST", "/connectors/bad/restart?onlyFailed=true&includeTasks=true")
    assert status == 202
    bad.worker.await_states("bad", "RUNNING", "RUNNING")


def test_a_connector_that_cannot_divide_its_work_is_failed(bad: Misbehaving) -> None:
    config = {"name": "bad", "config": bad.config("Bad", fails="task_configs")}
    assert bad.worker.ask("POST", "/connectors", config)[0] == 500
    assert bad.worker.states("bad") == ["FAILED"]
    config = {"name": "many", "config": bad.config("Bad", tasks="3")}
    bad.broken.unlink()
    status, answer = bad.worker.ask("POST", "/connectors", config)
    assert status == 500
    assert "has generated 3 tasks, which is greater than 1" in answer["message"]
    assert bad.worker.states("many") == ["FAILED"]


def test_offsets_of_a_connector_that_forbids_it_are_not_altered(bad: Misbehaving) -> None:
    bad.create("Bad")
    bad.worker.ask("PUT", "/connectors/bad/stop")
    status, answer = bad.worker.ask("DELETE", "/connectors/bad/offsets")
    assert status == 500
    assert "doesn't support external modification of offsets" in answer["message"]


def test_a_task_that_hangs_holds_nobody_up(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    worker = make_worker(servers, **{"task.shutdown.graceful.timeout.ms": "500"})
    bad = Misbehaving(worker, servers, tmp_path)
    produce(servers, bad.topic, [b"a"])
    bad.create("Bad", fails="put", kind="hang")
    bad.await_notes("hangs")
    good = {"connector.class": "FileStreamSource", "topic": bad.topic, "file": str(bad.broken)}
    worker.create("good", good)
    worker.await_states("good", "RUNNING", "RUNNING")
    assert worker.ask("DELETE", "/connectors/bad") == (204, None)
    worker.wait_for("graceful stop of task bad-0 failed")
    assert worker.ask("GET", "/connectors") == (200, ["good"])
    assert worker.stop() == 0


def test_the_example_of_the_documentation_works(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (points,) = re.findall(
        r'^\[project\.entry-points\."waylog\.connect"\]\n(.*?)^```$',
        page,
        re.MULTILINE | re.DOTALL,
    )
    assert example.count("\n") <= 45
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "counting.py").write_text(example)
    install(packages, "counting", points.replace('"', ""))
    topic = unique("counted")
    create_topic(servers, topic)
    produce(servers, topic, [b"x"], key=b"a")
    produce(servers, topic, [b"x", b"y"], key=b"b")
    worker = make_worker(servers)
    worker.start(python_path=packages)
    out = tmp_path / "counts.txt"
    worker.create("counts", {"connector.class": "CountingSink", "topics": topic, "file": str(out)})
    wait_until(lambda: lines_of(out) == ["a 1", "b 2"], "the counts", worker)
    _, plugins = worker.ask("GET", "/connector-plugins")
    assert "counting.CountingSink" in [each["class"] for each in plugins]


def test_a_task_whose_partitions_are_revoked_does_not_wait_for_a_silent_log(
    make_worker: MakeWorker, tmp_path: Path
) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = BrokerProcess(folder, auto_create_topics_enable="true")
    servers = broker.start()
    worker = make_worker(servers, **{"offset.flush.interval.ms": "600000"})
    bad = Misbehaving(worker, servers, tmp_path)
    two = unique("two")
    create_topic(servers, two, 2)
    for partition in (0, 1):
        produce(servers, two, [b"a"], partition=partition)
    bad.create("Bad", fails="pre_commit", kind="wait", topics=two)
    wait_until(lambda: bad.notes() == ["a", "a"], "both records", worker)
    other = Consumer(consumer_config(servers, "other", bad.topic))
    other.subscribe([two])
    wait_until(lambda: other.poll(0.1) or "waits" in bad.notes(), "the revocation", worker)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        bad.broken.unlink()
        assert worker.ask("PUT", "/connectors/bad/pause")[0] == 202
        worker.await_states("bad", "PAUSED", "PAUSED")
    finally:
        os.kill(broker.pid, signal.SIGCONT)
        other.close()
    wait_until(lambda: committed(bad) == [1, 1], "both offsets", worker)
    assert worker.stop() == 0
    broker.stop()
