"""A broker or cluster to be measured, in separate processes: ours, or Apache Kafka's jars."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from load_tests.own_platform import environment
from waylog.cli import CommandError
from waylog.config import save_properties
from waylog.network.free_ports import free_ports

WAYLOG: Final = "Waylog"
APACHE_KAFKA: Final = "Apache Kafka"

#: Linux: the clock id of a process's processor time is ~pid << 3 | 2, see clock_getcpuclockid(3).
_CPUCLOCK_SCHED: Final = 2
_START_S: Final = 120.0
_STOP_S: Final = 60.0
#: An ApiVersions request, version 0, which every broker answers.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)

#: The options of Kafka's own start script.
_JVM_OPTIONS: Final = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class Node:
    """One process of a broker or cluster; `folder` has its data and its output."""

    def __init__(self, name: str, folder: Path, port: int, command: list[str]) -> None:
        self.port = port
        self._name = name
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the processor time used so far.

        /proc has it in hundredths of a second, this clock in nanoseconds.
        """
        try:
            return time.clock_gettime((~self.pid << 3) | _CPUCLOCK_SCHED)
        except OSError:
            raise CommandError(f"{self._name} ended; see {self._folder}/log") from None

    def resident_mib(self) -> float:
        """Return the resident memory, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) / 1024

    def start(self) -> None:
        """Start the process; `wait_ready` waits until it answers."""
        self._log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(
            self._command, stdout=self._log, stderr=subprocess.STDOUT, env=environment()
        )

    def wait_ready(self) -> None:
        """Wait until the process answers clients; raises CommandError."""
        began = time.monotonic()
        while not answers(self.port):
            process = self._process
            if process is None or process.poll() is not None or _is_late(began):
                text = (self._folder / "log").read_text(errors="replace")
                raise CommandError(f"{self._name} did not start:\n{text[-1500:]}")
            time.sleep(0.005)

    def send_signal(self, number: int) -> None:
        """Send a signal to kill, freeze, resume or stop the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> None:
        """Wait for the end of the process, and kill it if that takes too long."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None


def _is_late(began: float) -> bool:
    return time.monotonic() - began > _START_S


class MeasuredBroker:
    """A broker, or a cluster of several, that runs inside a `with` block.

    Its data is in `folder`. Like Apache Kafka by default, both kinds leave it to the operating
    system when written data reaches the disk. With `flush`, they wait for the disk before they
    acknowledge. A cluster keeps every record on up to three brokers, all but one of which must be
    in sync. `properties` are added to the property file of each broker.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        brokers: int = 1,
        jars: Path | None = None,
        flush: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._folder = folder
        self._brokers = brokers
        self._jars = jars
        self._properties = dict(properties or {})
        if flush:
            self._properties["log.flush.interval.messages"] = "1"
        #: By node id.
        self.nodes: dict[int, Node] = {}
        #: Seconds from the start of the processes to the first answer of the last one.
        self.ready_s = 0.0

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def replication_factor(self) -> int:
        """The number of brokers that keep a record."""
        return min(self._brokers, 3)

    def cpu_s(self) -> float:
        """Return the processor time used so far by all brokers."""
        return sum(node.cpu_s() for node in self.nodes.values())

    def resident_mib(self) -> float:
        """Return the resident memory of all brokers, in MiB."""
        return sum(node.resident_mib() for node in self.nodes.values())

    def __enter__(self) -> MeasuredBroker:
        ports = free_ports(2 * self._brokers)
        controllers = dict(enumerate(ports[self._brokers :], 1))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for node_id, port in enumerate(ports[: self._brokers], 1):
            folder = self._folder / str(node_id)
            folder.mkdir(parents=True)
            config = folder / "server.properties"
            save_properties(config, self._settings(node_id, port, controllers, folder))
            if self._jars is None:
                command = [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)]
            else:
                command = _apache_kafka(self._jars, config, cluster_id)
            self.nodes[node_id] = Node(self.name, folder, port, command)
        began = time.monotonic()
        try:
            for node in self.nodes.values():
                node.start()
            for node in self.nodes.values():
                node.wait_ready()
        except BaseException:
            self._stop()
            raise
        self.ready_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.send_signal(signal.SIGCONT)
                node.send_signal(signal.SIGTERM)
        for node in self.nodes.values():
            node.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _settings(
        self, node_id: int, port: int, controllers: Mapping[int, int], folder: Path
    ) -> dict[str, str]:
        settings = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / "data"),
        }
        if self._brokers > 1 or self._jars is not None:
            voters = ",".join(f"{each}@127.0.0.1:{at}" for each, at in controllers.items())
            factor = str(self.replication_factor)
            in_sync = str(max(1, self.replication_factor - 1))
            settings |= {
                "process.roles": "broker,controller",
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{settings['listeners']},"
                f"CONTROLLER://127.0.0.1:{controllers[node_id]}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "default.replication.factor": factor,
                "min.insync.replicas": in_sync,
                "offsets.topic.replication.factor": factor,
                "share.coordinator.state.topic.replication.factor": factor,
                "transaction.state.log.replication.factor": factor,
                "transaction.state.log.min.isr": in_sync,
            }
        return settings | self._properties


def _apache_kafka(jars: Path, config: Path, cluster_id: str) -> list[str]:
    """Format the folder and return the command that runs the broker; raises CommandError."""
    java = ["java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
    done = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise CommandError(f"Apache Kafka's storage cannot be formatted: {done.stderr[-500:]}")
    return [java[0], *_JVM_OPTIONS, *java[1:], "kafka.Kafka", str(config)]


def answers(port: int) -> bool:
    """Return whether a broker answers on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(_API_VERSIONS)
            return len(client.recv(4)) == 4
    except OSError:
        return False


def default_jars() -> Path | None:
    """Return the folder of Apache Kafka's jars from `make test-kafka`; None if there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "waylog"
    found = sorted(path.parent for path in cache.glob("apache-kafka-*/complete"))
    return found[-1] if found else None
