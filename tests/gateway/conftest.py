"""One broker and one gateway for tests that only send and read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login
from waylog.kafka.clients import ensure_topics
from waylog.sealing.value_encryption import ensure_master_key

_numbers = itertools.count()


@pytest.fixture(scope="session")
def gateway_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Yield a broker with the platform's topics."""
    broker = Broker(tmp_path_factory.mktemp("gateway-broker"))
    ensure_topics(broker.address)
    yield broker
    broker.process.stop()


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the master key of the broker's forwardings: a log has one."""
    path = tmp_path_factory.mktemp("key") / "master.key"
    ensure_master_key(path)
    return path


@pytest.fixture(scope="session")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Yield a gateway with places."""
    folder: Path = tmp_path_factory.mktemp("gateway")
    running = Gateway(folder, gateway_broker.address, "--places", str(folder / "places"))
    yield running
    running.close()


@pytest.fixture
def user(gateway: Gateway) -> Login:
    """Return a user that only this test uses."""
    return gateway.user(f"user{next(_numbers)}")
