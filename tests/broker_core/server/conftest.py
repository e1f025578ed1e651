"""Fixtures that run brokers in the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.server.runtime import Broker, start_broker
from tests.broker_core.server.raw_client import RawClient


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use the event loop of `waylog broker`."""
    return {"uvloop": uvloop.new_event_loop}


StartBroker = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Start brokers in the test's folder; close them after the test."""
    brokers: list[Broker] = []

    async def run(environment: Environment | None = None, **properties: str) -> Broker:
        broker = await start_broker(
            BrokerConfig.from_properties(
                {
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "log.dirs": str(tmp_path / "logs"),
                    "auto.create.topics.enable": "false",
                    "group.initial.rebalance.delay.ms": "0",
                    "log.flush.interval.messages": "1",
                }
                | {name.replace("_", "."): value for name, value in properties.items()}
            ),
            environment,
        )
        brokers.append(broker)
        return broker

    yield run
    for broker in brokers:
        await broker.close()


@pytest.fixture
async def broker(start: StartBroker) -> Broker:
    """A broker that acknowledges after fdatasync."""
    return await start()


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[Broker], Awaitable[RawClient]]]:
    """Open raw connections; close them after the test."""
    clients: list[RawClient] = []

    async def open_one(broker: Broker) -> RawClient:
        client = await RawClient.connect(broker.endpoint)
        clients.append(client)
        return client

    yield open_one
    for client in clients:
        await client.close()
