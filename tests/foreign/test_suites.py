"""Other clients' own test suites, each on our broker and on Apache Kafka for comparison.

    WAYLOG_FRANZ_GO=~/franz-go .venv/bin/python -m pytest -m "kafka and long" tests/foreign -s

Each comes from a source tree that a variable names: WAYLOG_FRANZ_GO, WAYLOG_LIBRDKAFKA (built:
./configure && make libs && make -C tests test-runner interceptor_test), WAYLOG_AIOKAFKA,
WAYLOG_KAFKA_PYTHON, WAYLOG_CONFLUENT_KAFKA_PYTHON; WAYLOG_FOREIGN_PYTHON is an interpreter that has
the dependencies of the last three. Tests that pass on Apache Kafka have to pass here, except those
in `KNOWN`. With WAYLOG_TEST_BOOTSTRAP_SERVERS a suite runs once, on that broker. The output of the
suites is kept in the folder WAYLOG_FOREIGN_LOGS, if set; WAYLOG_FOREIGN_ONLY=0081,0113 selects
tests of librdkafka by number, WAYLOG_FOREIGN_JOBS is the number of those that run in parallel, and
WAYLOG_FOREIGN_PREFIX (`nice -n 19`) is put before the command of each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.apache_kafka import apache_kafka, jars
from tests.contract.broker_process import BrokerProcess
from tests.contract.cluster_processes import NODES, ClusterProcesses
from tests.foreign import librdkafka_suite
from tests.registry_process import registry_on

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(7200)]

_HERE: Final = Path(__file__).parent

#: Tests that may pass on Apache Kafka and fail here, with the reason, by suite.
KNOWN: Final[dict[str, dict[str, str]]] = {
    "franz-go": {},
    "librdkafka": {},
    "aiokafka": {
        "test_coordinator__heartbeat_routine": "times a mock, fails on a loaded machine",
        "test_consumer_seek_forward_getmany": "counts fetches from when its member is ready: where "
        "that is sooner, one of six times on three brokers, the first has been sent before",
        "test_delete_topics": "on three brokers asks any of them for the topics at once, and fails "
        "where that one has not heard of the deletion yet",
    },
    "kafka-python": {
        "test_alter_replica_log_dirs": "on three brokers asks any of them about a replica that one "
        "has: REPLICA_NOT_AVAILABLE from the others, as from Apache Kafka",
    },
    "confluent-kafka-python": {},
    "confluent-kafka-python schema registry": {},
    "confluent-kafka-python share groups": {
        "test_sync_commit_releases_gil": "wants another thread to get on during a commit, which "
        "may be answered within a millisecond",
    },
}


class Outcome(NamedTuple):
    """The result that a suite reports; a test with parameters counts once for each."""

    passed: int
    failed: set[str]
    skipped: int


def tree(variable: str) -> Path:
    """Return the source tree that a variable names; skips the test without one."""
    given = os.environ.get(variable)
    if not given:
        pytest.skip(f"{variable} names no source tree")
    return Path(given).expanduser()


#: Settings of both brokers.
_SETTINGS: Final = {
    "auto_create_topics_enable": "true",
    "num_partitions": "4",
    "group_initial_rebalance_delay_ms": "100",
    "group_min_session_timeout_ms": "1000",
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}


#: Settings of several brokers: consumers read from the nearest one.
_RACKS: Final = {
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
}


@contextmanager
def _apache_kafka(brokers: int, settings: dict[str, str]) -> Iterator[str]:
    more: dict[str, str | list[str]] = dict(settings)
    if brokers > 1:
        more |= _RACKS | {"broker_rack": [f"RACK{node}" for node in NODES]}
    # Some of these suites expect certain node ids.
    with apache_kafka(brokers, more, first_node=0 if brokers == 1 else 1) as servers:
        yield servers


@contextmanager
def _waylog(folder: Path, brokers: int, settings: dict[str, str]) -> Iterator[str]:
    folder.mkdir()
    if brokers > 1:
        cluster = ClusterProcesses(folder, nodes=NODES, **settings | _RACKS)
        for node, broker in cluster.brokers.items():
            broker.properties["broker.rack"] = f"RACK{node}"
            port = cluster.ports[node]
            broker.properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
        try:
            yield cluster.start()
        finally:
            cluster.stop()
        return
    broker = BrokerProcess(folder, **settings, advertised_listeners="PLAINTEXT://127.0.0.1:0")
    # Like the brokers that these suites know: without fdatasync for each append.
    del broker.properties["log.flush.interval.messages"]
    try:
        yield broker.start()
    finally:
        broker.stop()


def compare(
    suite: str, folder: Path, measure: Callable[[str], Outcome], brokers: int = 1, **more: str
) -> None:
    """Run a suite on both brokers; fail for tests that pass on Apache Kafka and fail on ours.

    `more` are further settings of the brokers. There are one or three brokers, which are new and
    empty for each run.
    """
    settings = _SETTINGS | more
    given = os.environ.get("WAYLOG_TEST_BOOTSTRAP_SERVERS")
    if given:
        _report(suite, given, measure(given))
        return
    with _waylog(folder / "waylog", brokers, settings) as servers:
        ours = measure(servers)
    _report(suite, "Waylog", ours)
    with _apache_kafka(brokers, settings) as servers:
        theirs = measure(servers)
    _report(suite, "Apache Kafka", theirs)
    assert ours.passed
    more_failed = ours.failed - theirs.failed
    assert not {name for name in more_failed if name.partition("[")[0] not in KNOWN[suite]}


def _report(suite: str, broker: str, outcome: Outcome) -> None:
    print(f"\n{suite} on {broker}: {outcome.passed} passed, {len(outcome.failed)} failed, "
          f"{outcome.skipped} skipped", sorted(outcome.failed), flush=True)  # fmt: skip


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run a suite to its end, passed or failed; return its output."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    logs = os.environ.get("WAYLOG_FOREIGN_LOGS")
    if logs:
        handle, _ = tempfile.mkstemp(".log", f"{folder.parent.name}-{folder.name}-", logs)
        with os.fdopen(handle, "w", encoding="utf-8") as log:
            log.write(done.stdout)
    return done.stdout


def run_pytest(folder: Path, *arguments: str, **environment: str) -> Outcome:
    """Run tests of a Python project."""
    python = os.environ.get("WAYLOG_FOREIGN_PYTHON", sys.executable)
    printed = run(
        [python, "-P", "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *arguments],
        folder, **environment,
    )  # fmt: skip
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (passed|skipped)", printed)}
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S*::(\w+(?:\[.*?\])?)(?= - |$)", printed, re.M))
    assert counts.get("passed"), printed[-3000:]
    return Outcome(counts["passed"], failed, counts.get("skipped", 0))


several = pytest.mark.parametrize("brokers", [1, 3])


@several
def test_franz_go(tmp_path: Path, brokers: int) -> None:
    folder = tree("WAYLOG_FRANZ_GO") / "pkg" / "kgo"
    if shutil.which("go") is None:
        pytest.skip("go not found: https://go.dev/dl")
    compare("franz-go", tmp_path, lambda servers: _franz_go(folder, servers, brokers), brokers)


def _franz_go(folder: Path, servers: str, brokers: int) -> Outcome:
    printed = run(
        ["go", "test", "-v", "-count=1", "-timeout", "1200s", "."], folder,
        KGO_SEEDS=servers, KGO_TEST_RF=str(brokers), KGO_TEST_RECORDS="20000", KGO_TEST_UNSAFE="1",
    )  # fmt: skip
    found = re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", printed, re.M)
    assert found, printed[-3000:]
    return Outcome(
        sum(verdict == "PASS" for verdict, _ in found),
        {name for verdict, name in found if verdict == "FAIL"},
        sum(verdict == "SKIP" for verdict, _ in found),
    )


@pytest.mark.parametrize("setting", ["default", "noautocreate", "three brokers"])
def test_librdkafka(tmp_path: Path, setting: str) -> None:
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
    # The folder in which it builds and runs its Java programs.
    (tmp_path / "libs").symlink_to(jars())
    script = tmp_path / "bin" / "kafka-run-class.sh"
    script.write_text(f'#!/bin/sh\nexec java -Xmx128M -cp "$CLASSPATH:{jars()}/*" "$@"\n')
    script.chmod(0o755)
    compare(
        "librdkafka",
        tmp_path,
        lambda servers: _librdkafka(folder, tmp_path, servers, setting),
        brokers=1 if setting == "default" else 3,
        auto_create_topics_enable=str(setting != "noautocreate").lower(),
        group_share_min_record_lock_duration_ms="1000",
    )


def _librdkafka(folder: Path, tmp_path: Path, servers: str, setting: str) -> Outcome:
    config = tmp_path / "test.conf"
    # Its default limits suit a machine that has nothing else to do.
    config.write_text(f"metadata.broker.list={servers}\ntest.timeout.multiplier=3\n")
    scenario = "noautocreate" if setting == "noautocreate" else "default"
    asked = set(librdkafka_suite.numbers(folder, scenario))
    if setting == "three brokers":
        asked &= librdkafka_suite.WANT_THREE_BROKERS
    elif setting == "default":
        asked -= librdkafka_suite.WANT_THREE_BROKERS
    only = os.environ.get("WAYLOG_FOREIGN_ONLY")
    if only:
        asked &= set(only.split(","))
    logs = os.environ.get("WAYLOG_FOREIGN_LOGS")
    verdicts = librdkafka_suite.run(
        folder,
        sorted(asked),
        {
            "RDKAFKA_TEST_CONF": str(config),
            "BROKERS": servers,
            "KAFKA_PATH": str(tmp_path),
            "TEST_KAFKA_VERSION": "4.3.0",
            "LD_LIBRARY_PATH": "../src:../src-cpp",
        },
        scenario=scenario,
        log=Path(tempfile.mkdtemp("", "librdkafka-", logs)) if logs else None,
    )
    for each in verdicts:
        print(f"{each.name}: {each.state} in {each.seconds:.1f} s {each.reason}", flush=True)
    return Outcome(
        sum(each.state == "passed" for each in verdicts),
        {each.name for each in verdicts if each.state == "failed"},
        sum(each.state == "skipped" for each in verdicts),
    )


@several
def test_aiokafka(tmp_path: Path, brokers: int) -> None:
    folder = tree("WAYLOG_AIOKAFKA")

    def measure(servers: str) -> Outcome:
        # The source tree must not hide the installed package.
        return run_pytest(
            folder, "tests", "--import-mode=append", "--ignore=tests/test_sasl.py",
            "--docker-image=image:4.3.0", "-p", "aiokafka_plugin",
            AIOKAFKA_BROKER=servers.partition(",")[0], PYTHONPATH=str(_HERE),
        )  # fmt: skip

    compare("aiokafka", tmp_path, measure, brokers, num_partitions="2")


@several
def test_kafka_python(tmp_path: Path, brokers: int) -> None:
    folder = tree("WAYLOG_KAFKA_PYTHON")

    def measure(servers: str) -> Outcome:
        first = servers.partition(",")[0]  # its setting takes a single broker
        return run_pytest(
            folder, "test/integration",
            "--ignore=test/integration/test_ssl_integration.py",
            "--ignore=test/integration/test_sasl_integration.py",
            KAFKA_URI=f"kafka://{first}", KAFKA_VERSION="4.3.0", KAFKA_ROOT=str(tmp_path),
        )  # fmt: skip

    compare("kafka-python", tmp_path, measure, brokers)


@several
def test_confluent_kafka_python(tmp_path: Path, brokers: int) -> None:
    folder = tree("WAYLOG_CONFLUENT_KAFKA_PYTHON")

    def measure(servers: str) -> Outcome:
        return run_pytest(
            folder,
            *(f"tests/integration/{name}" for name in ("admin", "consumer", "producer")),
            # It downloads a broker of its own.
            *("-k", "not test_describe_operations"),
            BROKERS=servers,
        )

    compare("confluent-kafka-python", tmp_path, measure, brokers)


def test_schema_registry_of_confluent_kafka_python(tmp_path: Path) -> None:
    folder = tree("WAYLOG_CONFLUENT_KAFKA_PYTHON")

    def measure(servers: str) -> Outcome:
        # One downloads a registry.
        words = ("--open", "--replication-factor", "1")
        with registry_on(servers, tmp_path, *words) as registry:
            return run_pytest(
                *(folder, "tests/integration/schema_registry/_sync"),
                *("-k", "not kafka_cluster_cp_7_0_1"),
                BROKERS=servers,
                SR_URL=registry.url,
            )

    compare("confluent-kafka-python schema registry", tmp_path, measure)


@several
def test_share_groups_of_confluent_kafka_python(tmp_path: Path, brokers: int) -> None:
    folder = tree("WAYLOG_CONFLUENT_KAFKA_PYTHON")

    def measure(servers: str) -> Outcome:
        return run_pytest(folder, "tests/integration/share_consumer", BROKERS=servers)

    compare(
        "confluent-kafka-python share groups",
        tmp_path,
        measure,
        brokers,
        group_share_record_lock_duration_ms="1000",
        group_share_min_record_lock_duration_ms="1000",
    )
