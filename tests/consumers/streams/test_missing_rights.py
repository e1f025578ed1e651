"""Topologies whose account lacks a right: they say which, and end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourceType,
)

from tests.consumers.running import Process
from tests.contract.test_security import Secured, allow, root, secured
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import ERASURE, LOCATION

_NEEDED = "is forbidden: the user as whom this client logs in needs the right READ on it"

# Fixtures of another module.
__all__ = ["root", "secured"]


@pytest.fixture
def account(secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secured:
    """Have processes log in as the user `plain`."""
    ensure_topics(secured.plaintext)
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=plain\nsasl.password=plain-pw\n"
    )
    path.chmod(0o600)
    monkeypatch.setenv("WAYLOG_KAFKA_CONFIG", str(path))
    return secured


def ended(account: Secured, name: str, *more: str) -> tuple[int, str]:
    """Run a topology, which must end by itself; return status and last line."""
    words = ("streams", "run", name, "--bootstrap-servers", account.login)
    process = Process(*words, *more)
    status = process.wait(60)
    return status, process.output.splitlines()[-1]


def test_a_topology_that_may_not_read_its_topic_says_so_and_ends(
    account: Secured, root: AdminClient
) -> None:
    status, line = ended(account, "speed")
    assert (status, line) == (1, f"waylog streams: topic {LOCATION} {_NEEDED}")
    # Known, and still not to be read.
    allow(root, AclOperation.DESCRIBE, LOCATION)
    allow(root, AclOperation.CREATE, "kafka-cluster", ResourceType.BROKER)
    for topic in (ERASURE, "streams-speed-changelog", "event", "error"):
        allow(root, AclOperation.ALL, topic)
    allow(root, AclOperation.ALL, "streams-speed", ResourceType.GROUP)
    status, line = ended(account, "speed")
    assert (status, line) == (1, f"waylog streams: topic {LOCATION} {_NEEDED}")


def test_a_topology_that_may_not_read_its_definitions_says_so_and_ends(
    account: Secured, root: AdminClient
) -> None:
    allow(root, AclOperation.CREATE, "kafka-cluster", ResourceType.BROKER)
    status, line = ended(account, "geofences")
    assert status == 1
    assert "geofence" in line


def test_a_topology_that_may_write_no_transactions_says_so_and_ends(
    account: Secured, root: AdminClient
) -> None:
    allow(root, AclOperation.CREATE, "kafka-cluster", ResourceType.BROKER)
    for topic in (LOCATION, ERASURE, "streams-trips-changelog", "trip", "trip-day", "error"):
        allow(root, AclOperation.ALL, topic)
    allow(root, AclOperation.ALL, "streams-trips", ResourceType.GROUP)
    status, line = ended(account, "trips", "--processing-guarantee", "exactly_once_v2")
    assert status == 1
    assert re.fullmatch(
        r"waylog streams: transactional id streams-trips-\S+ is forbidden: the user as whom this "
        r"client logs in needs the right WRITE on it",
        line,
    ), line
