"""Connections on both event loops, and brokers that secure theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from broker_core.configuration.config import BrokerConfig
from broker_core.server.runtime import Broker, start_broker
from tests.broker_core.server.certificates import Certificates

StartBroker = Callable[..., Awaitable[Broker]]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test on asyncio's event loop (console, consumers) and on uvloop (gateway)."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and the broker's certificate of it for 127.0.0.1 and localhost."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def start_secured(tmp_path: Path, certificates: Certificates) -> AsyncIterator[StartBroker]:
    """Start brokers with the certificate and topic `four`; close them after the test."""
    brokers: list[Broker] = []

    async def run(**properties: str) -> Broker:
        broker = await start_broker(
            BrokerConfig.from_properties(
                {
                    "log.dirs": str(tmp_path / "logs"),
                    "log.flush.interval.messages": "1",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(certificates.broker),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(certificates.authority),
                    "connection.failed.authentication.delay.ms": "20",
                }
                | {name.replace("_", "."): value for name, value in properties.items()}
            )
        )
        brokers.append(broker)
        broker.create_topic("four", 4, {})
        return broker

    yield run
    for broker in brokers:
        await broker.close()
