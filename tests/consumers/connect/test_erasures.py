"""What sinks do with records of erased devices, in a worker on a real broker."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    create_topic,
    lines_of,
    produce,
    wait_until,
)
from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.connect.sink_harness import fix
from waylog.history.erasures import append_erasures

MakeWorker = Callable[..., ConnectProcess]


def unique(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def append(servers: str, topic: str, device: str, value: str, at_ms: int) -> None:
    produce(servers, topic, [value.encode()], key=device.encode(), timestamp=at_ms)


def end_of(worker: ConnectProcess, name: str) -> int:
    """Return the offset that a sink of a topic with one partition has committed."""
    offsets = worker.ask("GET", f"/connectors/{name}/offsets")[1]["offsets"]
    return int(offsets[0]["offset"]["kafka_offset"]) if offsets else 0


def test_a_sink_leaves_out_what_was_erased_before_it_began(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, out = unique("lines"), tmp_path / "out.txt"
    anna, bert = unique("anna") + "/phone", unique("bert") + "/bike"
    create_topic(servers, topic)
    now_ms = round(time.time() * 1000)
    append(servers, topic, bert, "bert before", now_ms - 5)
    append(servers, topic, anna, "anna before", now_ms - 5)
    append(servers, topic, f"{anna}\nplace", "anna's place", now_ms)
    append_erasures(servers, [anna], now_ms)
    worker = make_worker(servers)
    worker.start()
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(out)}
    worker.create("out", config)
    wait_until(lambda: lines_of(out) == ["bert before"], "the line", worker)
    # What is left out counts as delivered.
    wait_until(lambda: end_of(worker, "out") == 3, "the offset", worker)
    append(servers, topic, anna, "anna after", now_ms + 1)
    append(servers, topic, anna, "anna late", now_ms)
    append(servers, topic, bert, "bert late", now_ms)
    wait_until(lambda: "bert late" in lines_of(out), "the last line", worker)
    assert lines_of(out) == ["bert before", "anna after", "bert late"]
    wait_until(lambda: end_of(worker, "out") == 6, "the offset", worker)
    assert worker.stop() == 0
    assert "Traceback" not in worker.output


def test_what_waits_for_a_server_is_not_sent_after_an_erasure(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic = unique("fixes")
    anna, bert = unique("anna") + "/phone", unique("bert") + "/bike"
    create_topic(servers, topic)
    server = HttpServer()
    worker = make_worker(servers)
    worker.start()
    worker.create(
        "hook",
        {
            "connector.class": "HttpSink",
            "topics": topic,
            "url": server.url,
            "retry.backoff.ms": "100",
            "retry.backoff.max.ms": "100",
        },
    )
    tracks = {"connector.class": "TrackFileSink", "topics": topic, "directory": str(tmp_path)}
    worker.create("tracks", tracks)
    now_ms = round(time.time() * 1000)
    for number, device in enumerate((anna, bert, anna)):
        append(servers, topic, device, json.dumps(fix(number, device)), now_ms)
    worker.wait_for("task hook-0: records come again")
    files = tmp_path / anna
    wait_until(lambda: list(files.glob("*.gpx")), "the track", worker)
    append_erasures(servers, [anna], now_ms)
    # The files tell that the worker knows.
    wait_until(lambda: not list(files.glob("*.gpx")), "no track", worker)
    with server.running():
        wait_until(lambda: end_of(worker, "hook") == 3, "the offset", worker)
        assert [json.loads(each)["device"] for each in server.bodies] == [bert]
    assert list((tmp_path / bert).glob("*.gpx"))


def test_a_worker_may_be_told_not_to_follow_erasures(
    servers: str, make_worker: MakeWorker, tmp_path: Path
) -> None:
    topic, out, anna = unique("lines"), tmp_path / "out.txt", unique("anna") + "/phone"
    create_topic(servers, topic)
    now_ms = round(time.time() * 1000)
    append(servers, topic, anna, "before", now_ms)
    append_erasures(servers, [anna], now_ms)
    worker = make_worker(servers, **{"erasures.enable": "false"})
    worker.start()
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(out)}
    worker.create("out", config)
    wait_until(lambda: lines_of(out) == ["before"], "the line", worker)
