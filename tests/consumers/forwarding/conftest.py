"""A platform for forwardings, on a broker of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consumers.connect.mqtt.mosquitto_server import MosquittoServer
from tests.consumers.forwarding.running import Platform
from tests.consumers.running import Broker


@pytest.fixture(scope="package")
def forwarding_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder: Path = tmp_path_factory.mktemp("forwarding")
    # A worker that was killed is missed sooner than in practice.
    broker = Broker(folder, {"group.min.session.timeout.ms": "1000"})
    platform = Platform(broker.address, folder)
    try:
        yield platform
    finally:
        platform.close()
        broker.process.stop()


@pytest.fixture
def platform(forwarding_platform: Platform) -> Iterator[Platform]:
    """Yield the platform that all tests share, without what others have forwarded."""
    yield forwarding_platform
    forwarding_platform.forget()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoServer]:
    (tmp_path / "mosquitto").mkdir()
    server = MosquittoServer(tmp_path / "mosquitto", password=True)
    server.start()
    yield server
    server.stop()
