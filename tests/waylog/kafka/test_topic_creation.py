"""Topics are created while a cluster starts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.cluster_processes import ClusterProcesses
from waylog.kafka.clients import LogUnreachable, ensure_topics
from waylog.kafka.topics import TOPICS


@pytest.fixture
def two_of_three(tmp_path: Path) -> Iterator[ClusterProcesses]:
    cluster = ClusterProcesses(tmp_path)
    cluster.start(1, 2)
    yield cluster
    cluster.stop()


def test_topics_are_created_when_enough_brokers_have_come(two_of_three: ClusterProcesses) -> None:
    servers = two_of_three.bootstrap_servers
    too_few = "topic .*: The target replication factor of 3 cannot be reached because only 2 broker"
    with pytest.raises(LogUnreachable, match=too_few):
        ensure_topics(servers, timeout_s=0.0)
    with ThreadPoolExecutor(1) as threads:
        creating = threads.submit(ensure_topics, servers, timeout_s=60.0)
        two_of_three.start(3)
        assert sorted(creating.result(60)) == sorted(topic.name for topic in TOPICS)
    assert ensure_topics(servers) == []
