"""Sarama's functional tests on a cluster of five brokers, ours and Apache Kafka's.

    WAYLOG_SARAMA=~/sarama .venv/bin/python -m pytest -m "kafka and long" -k sarama -s

Sarama expects toxiproxy in front of each broker, at fixed ports (29091 to 29095), and Docker to
start and stop brokers and to run Java's tools; the tests that need Docker are left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from tests.apache_kafka import VERSION, apache_kafka
from tests.contract.cluster_processes import ClusterProcesses
from tests.ports import reserved_ports

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(3600)]

_NODES: Final = (1, 2, 3, 4, 5)
#: Tests that call `docker compose`.
_WANT_DOCKER: Final = (
    "TestFuncAdminListConsumerGroupOffsets$|TestConsumerFetchFollowerFailover|TestJava"
    "|TestFuncTxnProduceWithBrokerFailure|TestFuncProducingIdempotentWithBrokerFailure"
)
_SETTINGS: Final = {
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "inter_broker_listener_name": "PLAINTEXT",
}


def _proxied(node: int) -> str:
    return f"127.0.0.1:{29090 + node}"


@contextmanager
def _waylog(folder: Path, ports: list[int]) -> Iterator[None]:
    cluster = ClusterProcesses(folder, nodes=_NODES, **_SETTINGS)
    for (node, broker), port in zip(cluster.brokers.items(), ports, strict=True):
        properties = broker.properties
        properties["listeners"] += f",CLIENTS://127.0.0.1:{port}"
        properties["listener.security.protocol.map"] = "CLIENTS:PLAINTEXT"
        properties["advertised.listeners"] = (
            f"PLAINTEXT://127.0.0.1:{cluster.ports[node]},CLIENTS://{_proxied(node)}"
        )
        properties["broker.rack"] = str(node)
    try:
        cluster.start()
        yield
    finally:
        cluster.stop()


@contextmanager
def _apache_kafka(ports: list[int]) -> Iterator[None]:
    more = _SETTINGS | {
        "listeners": [f"CLIENTS://127.0.0.1:{port}" for port in ports],
        "advertised_listeners": [f"CLIENTS://{_proxied(node)}" for node in _NODES],
        "listener_security_protocol_map": "CLIENTS:PLAINTEXT",
        "broker_rack": [str(node) for node in _NODES],
    }
    with apache_kafka(len(_NODES), more):
        yield


@contextmanager
def _toxiproxy(folder: Path, ports: list[int]) -> Iterator[str]:
    program = os.environ.get("WAYLOG_TOXIPROXY", "toxiproxy-server")
    if shutil.which(program) is None:
        pytest.skip(f"{program} not found: go install github.com/Shopify/toxiproxy/v2/cmd/server")
    config = folder / "toxiproxy.json"
    proxies = [
        {"name": f"kafka{node}", "listen": _proxied(node), "upstream": f"127.0.0.1:{port}"}
        for node, port in zip(_NODES, ports, strict=True)
    ]
    config.write_text(json.dumps(proxies))
    (port,) = reserved_ports(1)
    process = subprocess.Popen(
        [program, "-host", "127.0.0.1", "-port", str(port), "-config", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _measured(tree: Path, proxy: str) -> dict[str, str]:
    """Run the tests; return the verdict of each."""
    deadline = time.monotonic() + 60
    while len(AdminClient({"bootstrap.servers": _proxied(1)}).list_topics().brokers) < len(_NODES):
        assert time.monotonic() < deadline, "the brokers have not found each other"
        time.sleep(0.5)
    done = subprocess.run(
        ["go", "test", "-v", "-count=1", "-timeout", "1500s", "-tags", "functional",
         "-run", "^Test(Func|Consumer|VersionMatrix|ReadOnly|Interceptors|AsyncProducerRemote)",
         "-skip", f"{_WANT_DOCKER}", "."],
        cwd=tree, env=os.environ | {"TOXIPROXY_ADDR": proxy, "KAFKA_VERSION": VERSION},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    logs = os.environ.get("WAYLOG_FOREIGN_LOGS")
    if logs:
        (Path(logs) / f"sarama-{time.strftime('%H%M%S')}.log").write_text(done.stdout)
    found = {
        name: verdict
        for verdict, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", done.stdout, re.M)
    }
    assert found, done.stdout[-3000:]
    return found


def test_what_passes_in_sarama_on_apache_kafka_passes_here(tmp_path: Path) -> None:
    given = os.environ.get("WAYLOG_SARAMA")
    if not given:
        pytest.skip("WAYLOG_SARAMA names no source tree")
    if shutil.which("go") is None:
        pytest.skip("go not found: https://go.dev/dl")
    tree = Path(given).expanduser()
    ports = reserved_ports(len(_NODES))
    with _toxiproxy(tmp_path, ports) as proxy:
        with _waylog(tmp_path / "waylog", ports):
            ours = _measured(tree, proxy)
        print("\nsarama on Waylog:", _summary(ours), flush=True)
        with _apache_kafka(ports):
            theirs = _measured(tree, proxy)
        print("sarama on Apache Kafka:", _summary(theirs), flush=True)
    failed = {name for name, verdict in ours.items() if verdict == "FAIL"}
    assert not {name for name in failed if theirs.get(name) == "PASS"}


def _summary(found: dict[str, str]) -> str:
    counts = {
        verdict: sum(each == verdict for each in found.values())
        for verdict in ("PASS", "FAIL", "SKIP")
    }
    return f"{counts} {sorted(name for name, verdict in found.items() if verdict == 'FAIL')}"
