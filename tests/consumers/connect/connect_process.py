"""`waylog connect` in a process of its own, and topics to look into."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.consumers.running import WAYLOG, await_condition
from waylog.kafka.clients import client_config, consumer_config, producer_config

WAIT_S = 60


class ConnectProcess:
    """A worker; `start` and `kill` may be called in turn, it keeps its files."""

    action = "standalone"

    def __init__(self, folder: Path, bootstrap_servers: str, **properties: str) -> None:
        self.folder = folder
        self.properties = {
            "bootstrap.servers": bootstrap_servers,
            "listeners": "http://127.0.0.1:0",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **self.storage(folder),
            "offset.flush.interval.ms": "200",
            "task.shutdown.graceful.timeout.ms": "20000",
            # A member that stands still for longer reads again. One that was killed leaves its
            # group by this: a test in which others wait for that shortens it.
            "consumer.session.timeout.ms": "20000",
        } | {name.replace("_", "."): value for name, value in properties.items()}
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.url = ""

    @staticmethod
    def storage(folder: Path) -> dict[str, str]:
        """Return the properties of where the worker keeps its state."""
        return {"offset.storage.file.filename": str(folder / "offsets.json")}

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(
        self,
        *connectors: Path,
        python_path: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: Any = subprocess.DEVNULL,
        is_ready: bool = True,
        files: tuple[int, int] | None = None,
    ) -> None:
        """Start the worker, and wait until it is ready.

        `files` are the soft and the hard limit of open files.
        """
        worker = self.folder / "worker.properties"
        worker.write_text("".join(f"{name}={text}\n" for name, text in self.properties.items()))
        # A worker that hangs tells where its threads are, when it is aborted.
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        if python_path is not None:
            environment["PYTHONPATH"] = f"{python_path}:{Path.cwd()}"
        limits = ["prlimit", "--nofile={}:{}".format(*files)] if files else []
        self._process = subprocess.Popen(
            [*limits, *WAYLOG, "connect", self.action, str(worker), *map(str, connectors)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._new = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process, self._new))
        self._reader.start()
        if is_ready:
            self.url = self.wait_for(r"connect worker ready (\S+)")[1]

    def _read(self, process: subprocess.Popen[str], new: queue.SimpleQueue[str | None]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self.lines.append(line)
                new.put(line)
        new.put(None)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait for the next line that matches, and return the match."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                pytest.fail(f"no line {pattern!r} in:\n{self.output}")
            if match := re.search(pattern, line):
                return match

    def kill(self) -> None:
        """Kill the worker (SIGKILL)."""
        self.stop(signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the worker, and return its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        assert self._reader is not None
        try:
            status = process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.wait(WAIT_S)
            self._reader.join()
            pytest.fail(f"did not stop:\n{self.output}")
        self._reader.join()
        return status

    def wait(self) -> int:
        """Wait until the worker has ended by itself; return its exit status."""
        process, self._process = self._process, None
        assert process is not None
        assert self._reader is not None
        status = process.wait(WAIT_S)
        self._reader.join()
        return status

    # ---- REST ----

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of an answer; None for an empty one."""
        return asyncio.run(self._ask(method, path, body))

    async def _ask(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        async with (
            ClientSession() as session,
            session.request(method, self.url + path, json=body) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text else None

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector."""
        status, answer = self.ask("POST", "/connectors", {"name": name, "config": dict(config)})
        assert status == 201, answer

    def states(self, name: str) -> list[str]:
        """Return the states of a connector and its tasks."""
        _, found = self.ask("GET", f"/connectors/{quote(name)}/status")
        return [found["connector"]["state"], *(each["state"] for each in found["tasks"])]

    def await_states(self, name: str, *states: str) -> None:
        """Wait for the states of a connector and its tasks."""
        wait_until(lambda: self.states(name) == list(states), f"{name} is {states}", self)

    def trace(self, name: str, task: int = 0) -> str:
        """Return why a task has failed."""
        _, found = self.ask("GET", f"/connectors/{quote(name)}/tasks/{task}/status")
        trace: str = found["trace"]
        return trace


class DistributedProcess(ConnectProcess):
    """One of several workers, in a group that its properties name."""

    action = "distributed"

    @staticmethod
    def storage(folder: Path) -> dict[str, str]:
        """See ConnectProcess; short times, so that a test need not wait."""
        return {
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "300",
            "rebalance.timeout.ms": "20000",
            "scheduled.rebalance.max.delay.ms": "1000",
            "worker.unsync.backoff.ms": "1000",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "2",
        }

    @property
    def worker_id(self) -> str:
        """The id in states."""
        return self.url.removeprefix("http://")


def group_properties(group: str) -> dict[str, str]:
    """Return the properties that all workers of a group have."""
    properties = {"group.id": group}
    for kind in ("config", "offset", "status"):
        properties[f"{kind}.storage.topic"] = f"{group}-{kind}"
        properties[f"{kind}.storage.replication.factor"] = "1"
    return properties


def places(worker: ConnectProcess, name: str) -> dict[str, str]:
    """Return where a connector (key "connector") and its tasks run; only those that are RUNNING."""
    status, found = worker.ask("GET", f"/connectors/{quote(name, safe='')}/status")
    if status != 200:
        return {}
    parts = {"connector": found["connector"]}
    parts |= {str(each["id"]): each for each in found["tasks"]}
    return {part: each["worker_id"] for part, each in parts.items() if each["state"] == "RUNNING"}


def wait_until(
    condition: Callable[[], object], what: str, worker: ConnectProcess | None = None
) -> None:
    """Wait until a condition is true."""
    try:
        await_condition(condition, WAIT_S, what)
    except BaseException:
        if worker is not None:
            print(worker.output)
        raise


def create_topic(servers: str, topic: str, partitions: int = 1) -> None:
    """Create a topic."""
    admin = AdminClient(client_config(servers, "tests"))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)


def create_compacted(servers: str, topic: str) -> None:
    """Create a topic with one partition that is compacted."""
    admin = AdminClient(client_config(servers, "tests"))
    new = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([new])[topic].result(WAIT_S)


def produce(servers: str, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    """Append records; those without a key are spread over all partitions."""
    # librdkafka would send what is produced within 10 ms to one partition.
    spread = {"sticky.partitioning.linger.ms": 0}
    producer = Producer({**producer_config(servers, "tests"), **spread})
    for value in values:
        while True:
            try:
                producer.produce(topic, value, **more)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WAIT_S) == 0


class Topic:
    """Reads a topic from its beginning, and goes on with new records."""

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(consumer_config(servers, "tests", "tests"))
        self._topic = topic
        self.records: list[Message] = []
        wait_until(self._partitions, f"topic {topic}")
        self._consumer.assign([TopicPartition(topic, number, 0) for number in self._partitions()])

    def _partitions(self) -> list[int]:
        found = self._consumer.list_topics(self._topic, timeout=WAIT_S).topics[self._topic]
        return [] if found.error is not None else list(found.partitions)

    def read(self) -> list[Message]:
        """Return all records so far."""
        self.records += [
            each for each in self._consumer.consume(5000, 0.05) if each.error() is None
        ]
        return self.records

    def values(self) -> list[str]:
        """Return the values of all records so far."""
        return [(each.value() or b"").decode() for each in self.read()]

    def close(self) -> None:
        self._consumer.close()


def headers_of(message: Message) -> dict[str, str]:
    """Return the headers of a record as texts."""
    headers: Any = message.headers() or ()
    return {name: (value or b"").decode() for name, value in headers}


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that may not exist yet."""
    return path.read_text().splitlines() if path.exists() else []
