"""Records of sources that the producer does not take, and what producers leave behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    DistributedProcess,
    Topic,
    create_topic,
    wait_until,
)
from tests.consumers.connect.test_metrics import scraped
from tests.consumers.connect.test_standalone import unique

MakeWorker = Callable[..., ConnectProcess]
MakeGroup = Callable[..., list[DistributedProcess]]

#: More than Kafka's `max.request.size`.
TOO_LONG = 1_100_000


def write_lines(path: Path) -> Path:
    path.write_bytes(b"before\n" + b"x" * TOO_LONG + b"\n" + b"y" * 5 * TOO_LONG + b"\nafter\n")
    return path


def test_a_tolerated_record_that_is_too_large_is_left_out(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, path = unique("large"), write_lines(tmp_path / "in.txt")
    create_topic(servers, topic)
    worker = make_worker(servers)
    worker.start()
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic}
    worker.create("in", {**config, "errors.tolerance": "all"})
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["before", "after"], "the others", worker)
    records.close()
    skipped = ("task_error_metrics_records_skipped_total", "in", "0")
    wait_until(lambda: scraped(worker)[skipped] == 2, "both are counted", worker)
    line = f"leaves out a record that topic {topic} does not take"
    wait_until(lambda: line in worker.output, "it is told", worker)
    offsets = {"partition": {"filename": str(path)}, "offset": {"position": path.stat().st_size}}
    wait_until(
        lambda: worker.ask("GET", "/connectors/in/offsets")[1] == {"offsets": [offsets]},
        "the offset behind all of them",
        worker,
    )
    assert worker.states("in") == ["RUNNING", "RUNNING"]


def test_one_that_is_not_tolerated_fails_the_task(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, path = unique("large"), write_lines(tmp_path / "in.txt")
    create_topic(servers, topic)
    worker = make_worker(servers)
    worker.start()
    worker.create("in", {"connector.class": "FileStreamSource", "file": str(path), "topic": topic})
    worker.await_states("in", "RUNNING", "FAILED")
    assert f"trying to send to topic {topic}: " in worker.trace("in")
    assert "too large" in worker.trace("in")


def test_an_exactly_once_source_leaves_it_out_too(
    servers: str, make_group: MakeGroup, tmp_path: Path
) -> None:
    topic, path = unique("large"), write_lines(tmp_path / "in.txt")
    create_topic(servers, topic)
    enabled = {"exactly.once.source.support": "enabled"}
    (worker,) = make_group(1, unique("once"), **enabled)
    worker.start()
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic}
    worker.create("in", {**config, "errors.tolerance": "all"})
    records = Topic(servers, topic)
    wait_until(lambda: records.values() == ["before", "after"], "the others", worker)
    records.close()


def clients(worker: ConnectProcess) -> int:
    """Return the number of Kafka clients of a worker: each has a thread of this name."""
    names = []
    for each in Path(f"/proc/{worker.pid}/task").glob("*/comm"):
        with suppress(OSError):  # a thread that ends meanwhile
            names.append(each.read_text())
    return names.count("rdk:main\n")


def test_sources_leave_no_producer_behind(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, path = unique("large"), write_lines(tmp_path / "in.txt")
    create_topic(servers, topic)
    worker = make_worker(servers)
    worker.start()
    before = clients(worker)
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": topic}
    for number in range(4):
        name = f"in-{number}"
        tolerance = "all" if number % 2 else "none"
        worker.create(name, {**config, "errors.tolerance": tolerance})
        worker.await_states(name, "RUNNING", "RUNNING" if number % 2 else "FAILED")
    wait_until(lambda: clients(worker) == before + 2, "those that run", worker)
    for number in range(4):
        assert worker.ask("DELETE", f"/connectors/in-{number}")[0] == 204
    wait_until(lambda: clients(worker) == before, "none", worker)
