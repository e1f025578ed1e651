"""A cluster that can be told to refuse whatever is appended to one of its topics."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.contract.cluster_processes import ClusterProcesses
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import Topic

_LEADER, _FOLLOWER = 1, 3
_TIMEOUT_S = 60


class ClusterWithRefusingTopic(ClusterProcesses):
    """Three brokers. Two of them have the topic, which stores nothing while one is stopped.

    Each other topic is on all three, and needs two of them.
    """

    def __init__(self, folder: Path, topic: Topic) -> None:
        super().__init__(folder)
        self._topic = topic

    def start(self, *nodes: int) -> str:
        servers = super().start(*nodes)
        if not nodes:
            new = NewTopic(
                self._topic.name,
                self._topic.partitions,
                replica_assignment=[[_LEADER, _FOLLOWER]] * self._topic.partitions,
                config=self._topic.config | {"min.insync.replicas": "2"},
            )
            admin = AdminClient({"bootstrap.servers": servers})
            admin.create_topics([new])[self._topic.name].result(_TIMEOUT_S)
            ensure_topics(servers)
        return servers

    def refuse(self) -> None:
        """Stop the follower in order: from now on too few replicas are in sync."""
        self.brokers[_FOLLOWER].stop()
        self._await_in_sync({_LEADER})

    def accept(self) -> None:
        """Start the follower, and wait until it is in sync."""
        self.start(_FOLLOWER)
        self._await_in_sync({_LEADER, _FOLLOWER})

    def _await_in_sync(self, wanted: set[int]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        name = self._topic.name
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            described = admin.describe_topics(TopicCollection([name]))[name].result(_TIMEOUT_S)
            if all({node.id for node in each.isr} == wanted for each in described.partitions):
                return
            if time.monotonic() > deadline:
                pytest.fail(f"{name} has not {wanted} in sync within {_TIMEOUT_S} s")
            time.sleep(0.05)
