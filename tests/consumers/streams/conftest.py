"""A broker, topologies as processes of their own, and a schema registry."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.consumers.running import Broker, Process
from tests.registry_process import Registry, registry_with_broker


@pytest.fixture(scope="package")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Give a registry with a broker of its own."""
    with registry_with_broker(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def start_topology(broker: Broker) -> Iterator[Callable[..., Process]]:
    """Give a function that starts `waylog streams run`; all are stopped at the end."""
    started: list[Process] = []

    def start(*words: Any) -> Process:
        arguments = ["streams", "run", *map(str, words), "--bootstrap-servers", broker.address]
        process = Process(*arguments)
        started.append(process)
        process.wait_for(r"topology \S+ ready")
        return process

    yield start
    for process in started:
        process.stop(signal.SIGKILL)
