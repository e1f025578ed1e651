"""A Kafka Connect worker (distributed, Maven Central) that keeps its state in our broker."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import maven
from tests.apache_kafka import VERSION
from tests.ports import reserved_ports

pytestmark = [pytest.mark.kafka]

_TIMEOUT_S = 90


def connect_jars() -> Path:
    """Return the jars of Kafka Connect with its file connectors; skips the test without them."""
    return maven.jars(
        f"kafka-connect-{VERSION}",
        f"org.apache.kafka:connect-runtime:{VERSION}",
        f"org.apache.kafka:connect-file:{VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )


class Worker:
    """The REST interface of a worker."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the worker's answer; None while it is not reachable, or rebalances."""
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                assert error.code in {404, 409, 500}, error.read()
            return None
        except (urllib.error.URLError, ConnectionError):
            return None
        return json.loads(text) if text else {}

    def answer(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and JSON of an answer; None for an empty one."""
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def runs(self, connector: str) -> bool:
        """Return whether a connector and its task run."""
        status = self.call("GET", f"/connectors/{connector}/status")
        if status is None:
            return False
        states = [status["connector"], *status["tasks"]]
        assert all(each["state"] != "FAILED" for each in states), status
        return len(states) == 2 and all(each["state"] == "RUNNING" for each in states)


def eventually(check: Callable[[], Any], what: str) -> Any:
    """Return the result of a check once it is true."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not (value := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return value


@contextmanager
def worker(folder: Path, bootstrap_servers: str, group: str, **properties: str) -> Iterator[Worker]:
    """Run a worker until the block ends, when it is killed with SIGKILL.

    `properties` are changed ones, given by `**` since they have dots.
    """
    port = reserved_ports(1)[0]
    config = folder / f"worker-{port}.properties"
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "offset.storage.partitions": 3,
        "plugin.path": connect_jars(),
        "plugin.discovery": "service_load",
    }
    for kind in ("offset", "config", "status"):
        settings[f"{kind}.storage.topic"] = f"{group}-{kind}"
        settings[f"{kind}.storage.replication.factor"] = 1
    settings |= properties
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with (folder / f"worker-{port}.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
             "-cp", f"{connect_jars()}/*",
             "org.apache.kafka.connect.cli.ConnectDistributed", str(config)],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield Worker(port)
    finally:
        process.kill()
        process.wait(30)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_connect_copies_a_file_through_a_topic_and_goes_on_after_kill_9(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    group = f"connect-{uuid.uuid4().hex[:8]}"
    source, target = tmp_path / "source", tmp_path / "target"
    wanted = [f"line {number}" for number in range(2000)]
    source.write_text("".join(f"{line}\n" for line in wanted[:1000]))
    connectors = {
        "source": {"connector.class": "FileStreamSource", "file": str(source), "topic": group},
        "sink": {"connector.class": "FileStreamSink", "file": str(target), "topics": group},
    }
    with worker(tmp_path, bootstrap_servers, group) as first:
        for name, config in connectors.items():
            path = f"/connectors/{name}/config"
            put = {"tasks.max": "1", **config}
            eventually(lambda: first.call("PUT", path, put), name)  # noqa: B023
            eventually(lambda: first.runs(name), name)  # noqa: B023
        eventually(lambda: len(_lines(target)) >= 1000, "the first thousand lines")
        # Wait for the source's own commit, where a new worker goes on.
        eventually(
            lambda: (first.call("GET", "/connectors/source/offsets") or {}).get("offsets"),
            "the source's position",
        )
    with source.open("a") as file:
        file.writelines(f"{line}\n" for line in wanted[1000:])
    with worker(tmp_path, bootstrap_servers, group) as second:
        for name in connectors:
            eventually(lambda: second.runs(name), name)  # noqa: B023
        eventually(lambda: wanted[-1] in _lines(target), "the last line")
        listed = second.call("GET", "/connectors")
        assert sorted(listed) == ["sink", "source"]
    # The source delivers exactly once; the sink may repeat what it had not committed.
    assert sorted(set(_lines(target))) == sorted(wanted)
    assert list(dict.fromkeys(_lines(target))) == wanted
