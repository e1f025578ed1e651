"""A broker for the tests of a module, and workers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consumers.connect.connect_process import (
    ConnectProcess,
    DistributedProcess,
    group_properties,
)
from tests.contract.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a broker that creates topics, as Kafka's quick start has it."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        auto_create_topics_enable="true",
        log_flush_interval_messages="1000",
    )
    yield broker.start()
    broker.stop()


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[Callable[..., ConnectProcess]]:
    """Give a function that makes a worker which is not started yet."""
    made: list[ConnectProcess] = []

    def make(servers: str, **properties: str) -> ConnectProcess:
        folder = tmp_path / f"worker-{len(made)}"
        folder.mkdir()
        worker = ConnectProcess(folder, servers, **properties)
        made.append(worker)
        return worker

    yield make
    for each in made:
        # In order, so that the group of a later test need not wait for its members.
        each.stop()


@pytest.fixture
def make_group(tmp_path: Path, servers: str) -> Iterator[Callable[..., list[DistributedProcess]]]:
    """Give a function that makes workers of one group, which are not started yet."""
    made: list[DistributedProcess] = []

    def make(count: int, group: str, **properties: str) -> list[DistributedProcess]:
        workers = []
        for _ in range(count):
            folder = tmp_path / f"worker-{len(made)}"
            folder.mkdir()
            worker = DistributedProcess(folder, servers, **group_properties(group), **properties)
            made.append(worker)
            workers.append(worker)
        return workers

    yield make
    for each in made:
        each.stop()
