"""One broker to measure, in a process of its own: ours, or Apache Kafka from its jars."""

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
from pathlib import Path
from typing import IO, Final

from load_tests.own_platform import environment
from waylog.cli import CommandError
from waylog.config import save_properties

WAYLOG: Final = "Waylog"
APACHE_KAFKA: Final = "Apache Kafka"

#: Linux: the clock of a process's processor time is ~pid << 3 | 2, see clock_getcpuclockid(3).
_CPUCLOCK_SCHED: Final = 2
_START_S: Final = 120.0
_STOP_S: Final = 60.0
#: ApiVersions, version 0, which every broker answers.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)

#: Kafka's own start script has these.
_JVM_OPTIONS: Final = (
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class MeasuredBroker:
    """A broker that runs within `with`, its data in `folder`.

    Both kinds leave it to the operating system when what they have written reaches the disk, as
    Apache Kafka does by default; `flush` makes each wait for the disk before it acknowledges.
    """

    def __init__(
        self, name: str, folder: Path, *, jars: Path | None = None, flush: bool = False
    ) -> None:
        self.name = name
        self._folder = folder
        self._jars = jars
        self._flush = flush
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        #: From the start of the process to the first answer.
        self.ready_s = 0.0

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time used so far; /proc has it in hundredths, this clock in nanoseconds."""
        try:
            return time.clock_gettime((~self.pid << 3) | _CPUCLOCK_SCHED)
        except OSError:
            raise CommandError(f"{self.name} ended; see {self._folder}/log") from None

    def resident_mib(self) -> float:
        """Resident memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        return int(match[1]) / 1024

    def __enter__(self) -> MeasuredBroker:
        self._folder.mkdir(parents=True)
        self._port = free_port()
        command = self._waylog() if self._jars is None else self._apache_kafka(self._jars)
        self._log = (self._folder / "log").open("wb")
        began = time.monotonic()
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, env=environment()
        )
        try:
            while not answers(self._port):
                if self._process.poll() is not None or time.monotonic() - began > _START_S:
                    text = (self._folder / "log").read_text(errors="replace")
                    raise CommandError(f"{self.name} did not start:\n{text[-1500:]}")
                time.sleep(0.005)
        except BaseException:
            self._stop()
            raise
        self.ready_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _waylog(self) -> list[str]:
        config = self._folder / "server.properties"
        save_properties(
            config,
            {
                "node.id": "1",
                "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
                "log.dirs": str(self._folder / "data"),
            }
            | self._common(),
        )
        return [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)]

    def _apache_kafka(self, jars: Path) -> list[str]:
        config = self._folder / "server.properties"
        controller = free_port()
        save_properties(
            config,
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{self.bootstrap_servers},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "log.dirs": str(self._folder / "data"),
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
            }
            | self._common(),
        )
        java = [
            "java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*",
        ]  # fmt: skip
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise CommandError(f"Apache Kafka's storage cannot be formatted: {done.stderr[-500:]}")
        return [java[0], *_JVM_OPTIONS, *java[1:], "kafka.Kafka", str(config)]

    def _common(self) -> dict[str, str]:
        return {"log.flush.interval.messages": "1"} if self._flush else {}


def free_port() -> int:
    """A port on loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether a broker answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(_API_VERSIONS)
            return len(client.recv(4)) == 4
    except OSError:
        return False


def default_jars() -> Path | None:
    """Apache Kafka's jars where `make test-kafka` has put them; None if it has not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "waylog"
    found = sorted(path.parent for path in cache.glob("apache-kafka-*/complete"))
    return found[-1] if found else None
