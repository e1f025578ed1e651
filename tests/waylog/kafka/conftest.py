"""Brokers that secure their connections, and properties of clients that they let in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker_core.configuration.config import BrokerConfig
from broker_core.security.scram import BY_NAME, credential_from_password
from broker_core.server.runtime import Broker, start_broker
from tests.broker_core.server.topics import create_topic
from tests.certificates import Certificates

StartBroker = Callable[..., Awaitable[Broker]]

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
USER, PASSWORD = "anna", "pl;ain pw"


@pytest.fixture
async def start_secured(tmp_path: Path, certificates: Certificates) -> AsyncIterator[StartBroker]:
    """Start brokers with the certificate, USER and topic `four`; close them after the test."""
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
                    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                    "sasl.jaas.config": f'PlainLoginModule required user_{USER}="{PASSWORD}";',
                    "connection.failed.authentication.delay.ms": "20",
                }
                | {name.replace("_", "."): value for name, value in properties.items()}
            )
        )
        brokers.append(broker)
        for mechanism in BY_NAME.values():
            broker.scram_users.put(USER, mechanism, credential_from_password(mechanism, PASSWORD))
        if "four" not in broker.topics:
            create_topic(broker, "four", 4, {})
        return broker

    yield run
    for broker in brokers:
        await broker.close()


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    """Return the properties of a login without TLS, as a file of Kafka's tools has them."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'LoginModule required username="{USER}" password="{password}";',
    }


def over_tls(properties: dict[str, str], certificates: Certificates) -> dict[str, str]:
    """Return the same properties for a listener with TLS."""
    protocol = "SASL_SSL" if "sasl.mechanism" in properties else "SSL"
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.authority)}
    return properties | {"security.protocol": protocol} | trust
