"""A broker and resolvers as processes of their own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.running import Broker, Process
from waylog.kafka import ensure_topics


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    try:
        ensure_topics(broker.address)
        yield broker
    finally:
        broker.process.stop()


@pytest.fixture
def start_resolver(broker: Broker) -> Iterator[Callable[..., Process]]:
    """Starts a resolver process; all are stopped at the end."""
    started: list[Process] = []

    def start(*words: Any) -> Process:
        process = Process("resolver", "--bootstrap-servers", broker.address, *words)
        started.append(process)
        process.wait_for("resolver ready")
        return process

    yield start
    for process in started:
        process.stop(signal.SIGKILL)
