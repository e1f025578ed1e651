"""A real Apache Kafka from Maven Central, for tests that must pass on it and on our broker."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests import maven
from tests.ports import reserved_ports

VERSION = "4.3.1"

_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)


def jars() -> Path:
    """Return the folder with Kafka's jars; skips the test if they cannot be fetched."""
    return maven.jars(f"apache-kafka-{VERSION}", *_ARTIFACTS)


def tool(name: str, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line classes, e.g. org.apache.kafka.tools.TopicCommand."""
    return subprocess.run(
        ["java", "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
         "-cp", f"{jars()}/*", name, *arguments],
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip


#: List properties, which `more` extends, with the separator of their values.
_LISTS = {
    "listeners": ",",
    "advertised.listeners": ",",
    "listener.security.protocol.map": ",",
    "super.users": ";",
}
#: Brokers log in to the controller. Before ACLs are loaded, the controller only admits super users,
#: and this way clients without a name need not be super users.
_CONTROLLER_LOGIN = {
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="controller" password="controller" user_controller="controller";'
    ),
    "super.users": "User:controller",
}


def _properties(
    node: int,
    first: int,
    listener: int,
    controllers: list[int],
    data: Path,
    more: Mapping[str, str | Sequence[str]],
) -> str:
    voters = ",".join(f"{i + first}@127.0.0.1:{port}" for i, port in enumerate(controllers))
    replication = min(len(controllers), 3)
    internal: dict[str, object] = dict(_CONTROLLER_LOGIN)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        internal[f"{topic}.replication.factor"] = replication
        internal[f"{topic}.num.partitions"] = 4
        if topic != "offsets.topic":
            internal[f"{topic}.min.isr"] = max(1, replication - 1)
    properties = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://127.0.0.1:{listener},"
        f"CONTROLLER://127.0.0.1:{controllers[node - first]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{listener}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
        "default.replication.factor": replication,
        "min.insync.replicas": max(1, replication - 1),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.consumer.heartbeat.interval.ms": 500,
    } | internal
    for key, given in more.items():
        name = key.replace("_", ".")
        value = given if isinstance(given, str) else given[node - first]
        added = f"{properties[name]}{_LISTS[name]}{value}" if name in _LISTS else value
        properties[name] = added
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def _start(config: Path, log_path: Path) -> subprocess.Popen[bytes]:
    logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"
    command = ["java", "-Xmx512M", logging, "-cp", f"{jars()}/*", "kafka.Kafka", str(config)]
    with log_path.open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


class ApacheKafka:
    """A running cluster, whose nodes can be killed and started again."""

    def __init__(self, address: str) -> None:
        self.address = address  # the bootstrap servers
        self._nodes: list[tuple[Path, Path]] = []  # configuration and log
        self._processes: list[subprocess.Popen[bytes]] = []

    def add(self, config: Path, log_path: Path) -> None:
        """Start a new node; it may take some seconds to serve."""
        self._nodes.append((config, log_path))
        self._processes.append(_start(config, log_path))

    def await_start(self, timeout_s: float = 90) -> None:
        """Wait until all nodes have started."""
        deadline = time.monotonic() + timeout_s
        while not all(b"Kafka Server started" in log.read_bytes() for _, log in self._nodes):
            assert time.monotonic() < deadline, self._nodes[0][1].read_text()[-2000:]
            assert all(process.poll() is None for process in self._processes)
            time.sleep(0.1)

    def kill(self, index: int = 0) -> None:
        """End a node at once."""
        self._processes[index].kill()
        self._processes[index].wait()

    def start(self, index: int = 0) -> None:
        """Start a node again that was killed."""
        self._processes[index] = _start(*self._nodes[index])
        self.await_start()

    def stop(self) -> None:
        """End all nodes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def apache_kafka(
    brokers: int = 1,
    more: Mapping[str, str | Sequence[str]] | None = None,
    *,
    first_node: int = 1,
) -> Iterator[str]:
    """Run a cluster of combined nodes on loopback, numbered from one; yield its bootstrap servers.

    Names in `more` have `_` where a property has a dot; a value is for all nodes, or a sequence has
    one for each. `listeners` is appended to the two that always exist, PLAINTEXT and CONTROLLER.
    """
    with running_apache_kafka(brokers, more, first_node=first_node) as cluster:
        yield cluster.address


@contextmanager
def running_apache_kafka(
    brokers: int = 1,
    more: Mapping[str, str | Sequence[str]] | None = None,
    *,
    first_node: int = 1,
) -> Iterator[ApacheKafka]:
    """Run a cluster as `apache_kafka` does, and yield it."""
    ports = reserved_ports(2 * brokers)
    listeners, controllers = ports[:brokers], ports[brokers:]
    cluster = ApacheKafka(",".join(f"127.0.0.1:{port}" for port in listeners))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        cluster_id = tool("kafka.tools.StorageTool", "random-uuid").stdout.split()[-1]
        formatting = ("format", "-t", cluster_id, "-c")
        try:
            for i in range(brokers):
                node = folder / str(i + 1)
                node.mkdir()
                config = node / "server.properties"
                config.write_text(
                    _properties(
                        i + first_node,
                        first_node,
                        listeners[i],
                        controllers,
                        node / "data",
                        more or {},
                    )
                )
                done = tool("kafka.tools.StorageTool", *formatting, str(config))
                assert done.returncode == 0, done.stderr
                cluster.add(config, node / "log")
            cluster.await_start()
            yield cluster
        finally:
            cluster.stop()
