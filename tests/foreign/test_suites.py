"""Other clients' own test suites on our broker, each from a source tree that a variable names.

    WAYLOG_FRANZ_GO=~/franz-go .venv/bin/python -m pytest -m "kafka and long" tests/foreign -s

WAYLOG_FRANZ_GO, WAYLOG_LIBRDKAFKA (built: ./configure && make libs && make -C tests test-runner),
WAYLOG_AIOKAFKA, WAYLOG_KAFKA_PYTHON, WAYLOG_CONFLUENT_KAFKA_PYTHON; WAYLOG_FOREIGN_PYTHON is an
interpreter that has what the last three need. With WAYLOG_TEST_BOOTSTRAP_SERVERS they run on that
broker, to compare. `KNOWN` lists what fails here, and why.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.apache_kafka import jars
from tests.contract.broker_process import BrokerProcess

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(3600)]

_HERE: Final = Path(__file__).parent

#: Tests that say nothing about a broker, or want what one node without TLS has not, by suite.
KNOWN: Final[dict[str, dict[str, str]]] = {
    "franz-go": {},
    "librdkafka": {
        "0055_producer_latency": "measures latency, fails on a loaded machine",
        "0081_admin": "changes a setting of Kerberos, which this broker has not",
        "0098_consumer_txn": "wants three brokers",
        "0101_fetch_from_follower": "wants three brokers",
        "0103_transactions": "wants three brokers",
        "0129_fetch_aborted_msgs": "wants three brokers",
        "0150_telemetry_mock": "times its own mock cluster, fails on a loaded machine",
    },
    "aiokafka": {
        "test_ssl_consume": "wants a TLS listener with its certificates",
        "test_producer_ssl": "wants a TLS listener with its certificates",
        "test_create_ssl_context": "wants its certificates",
        "test_coordinator__heartbeat_routine": "times a mock, fails on a loaded machine",
    },
    "kafka-python": {
        "test_describe_configs_broker_resource_returns_configs": "wants advertised.listeners to be "
        "a setting that changes while the broker runs",
    },
    "confluent-kafka-python": {
        "test_describe_operations": "downloads a broker of its own",
        "test_incremental_alter_configs": "wants min.insync.replicas among a topic's own settings, "
        "as a cluster with eligible leader replicas has it",
    },
}

#: Share groups, which we do not serve, and what only measures time.
_LIBRDKAFKA_SKIPPED: Final = [f"{number:04}" for number in (55, *range(170, 187), 190)]


class Outcome(NamedTuple):
    """What a suite says of itself."""

    passed: int
    failed: set[str]
    skipped: int


def tree(variable: str) -> Path:
    """The source tree that a variable names; skips the test without one."""
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no source tree")
    return Path(given).expanduser()


@pytest.fixture
def servers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with nothing in it, set as the suites' own brokers are.

    The parameter is the number of partitions of a new topic.
    """
    given = os.environ.get("WAYLOG_TEST_BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    broker = BrokerProcess(
        tmp_path,
        auto_create_topics_enable="true",
        num_partitions=getattr(request, "param", "4"),
        group_initial_rebalance_delay_ms="100",
        group_min_session_timeout_ms="1000",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
    )
    # As the brokers that these suites know: no fdatasync for each append.
    broker.properties["log.flush.interval.messages"] = str(2**63 - 1)
    yield broker.start()
    broker.stop()


def judge(suite: str, outcome: Outcome) -> None:
    """Report, and fail for what is not known to fail elsewhere too."""
    print(f"\n{suite}: {outcome.passed} passed, {len(outcome.failed)} failed, "
          f"{outcome.skipped} skipped", sorted(outcome.failed))  # fmt: skip
    assert outcome.passed
    assert not outcome.failed - KNOWN[suite].keys()


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a suite to its end, whatever that is; returns what it prints."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.stdout


def run_pytest(folder: Path, *arguments: str, **environment: str) -> Outcome:
    """Run tests of a Python project."""
    python = os.environ.get("WAYLOG_FOREIGN_PYTHON", sys.executable)
    printed = run(
        [python, "-P", "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *arguments],
        folder, **environment,
    )  # fmt: skip
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (passed|skipped)", printed)}
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S*::(\w+)", printed, re.M))
    assert counts.get("passed"), printed[-3000:]
    return Outcome(counts["passed"], failed, counts.get("skipped", 0))


def test_franz_go(servers: str) -> None:
    folder = tree("WAYLOG_FRANZ_GO") / "pkg" / "kgo"
    if shutil.which("go") is None:
        pytest.skip("go not found: https://go.dev/dl")
    printed = run(
        ["go", "test", "-v", "-count=1", "-skip", "Share", "-timeout", "1200s", "."], folder,
        KGO_SEEDS=servers, KGO_TEST_RF="1", KGO_TEST_RECORDS="20000", KGO_TEST_UNSAFE="1",
    )  # fmt: skip
    found = re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", printed, re.M)
    assert found, printed[-3000:]
    judge(
        "franz-go",
        Outcome(
            sum(verdict == "PASS" for verdict, _ in found),
            {name for verdict, name in found if verdict == "FAIL"},
            sum(verdict == "SKIP" for verdict, _ in found),
        ),
    )


def test_librdkafka(servers: str, tmp_path: Path) -> None:
    folder = tree("WAYLOG_LIBRDKAFKA") / "tests"
    if not (folder / "test-runner").exists():
        pytest.skip(f"{folder}/test-runner is not built")
    tools = {
        "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
        "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
        "kafka-configs.sh": "kafka.admin.ConfigCommand",
    }
    (tmp_path / "bin").mkdir()
    for name, command in tools.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec java -Xmx128M -cp "{jars()}/*" {command} "$@"\n')
        script.chmod(0o755)
    config = tmp_path / "test.conf"
    config.write_text(f"metadata.broker.list={servers}\n")
    printed = run(
        ["./test-runner", "-L", "-E", "-p2"], folder,
        RDKAFKA_TEST_CONF=str(config), BROKERS=servers, KAFKA_PATH=str(tmp_path),
        TEST_KAFKA_VERSION="4.3.0", KAFKA_VERSION="4.3.0",
        TESTS_SKIP=",".join(_LIBRDKAFKA_SKIPPED), LD_LIBRARY_PATH="../src:../src-cpp",
    )  # fmt: skip
    plain = re.sub(r"\x1b\[\d+m", "", printed)
    found = re.findall(r"\| (\d{4}_\w+) +\| +(PASSED|FAILED|SKIPPED)", plain)
    assert found, plain[-3000:]
    judge(
        "librdkafka",
        Outcome(
            sum(verdict == "PASSED" for _, verdict in found),
            {name for name, verdict in found if verdict == "FAILED"},
            sum(verdict == "SKIPPED" for _, verdict in found),
        ),
    )


@pytest.mark.parametrize("servers", ["2"], indirect=True)
def test_aiokafka(servers: str) -> None:
    # Its sources must not hide the package that is installed.
    outcome = run_pytest(
        tree("WAYLOG_AIOKAFKA"), "tests", "--import-mode=append", "--ignore=tests/test_sasl.py",
        "--docker-image=image:4.3.0", "-p", "aiokafka_plugin",
        AIOKAFKA_BROKER=servers, PYTHONPATH=str(_HERE),
    )  # fmt: skip
    judge("aiokafka", outcome)


def test_kafka_python(servers: str, tmp_path: Path) -> None:
    outcome = run_pytest(
        tree("WAYLOG_KAFKA_PYTHON"), "test/integration",
        "--ignore=test/integration/test_ssl_integration.py",
        "--ignore=test/integration/test_sasl_integration.py",
        KAFKA_URI=f"kafka://{servers}", KAFKA_VERSION="4.3.0", KAFKA_ROOT=str(tmp_path),
    )  # fmt: skip
    judge("kafka-python", outcome)


def test_confluent_kafka_python(servers: str) -> None:
    outcome = run_pytest(
        tree("WAYLOG_CONFLUENT_KAFKA_PYTHON"),
        *(f"tests/integration/{name}" for name in ("admin", "consumer", "producer")),
        BROKERS=servers,
    )
    judge("confluent-kafka-python", outcome)
