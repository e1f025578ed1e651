"""A node that another one does not let in logs once why, and goes on trying."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker_core.configuration.config import BrokerConfig
from broker_core.protocol.definitions import BROKER_HEARTBEAT
from broker_core.security.tls import client_context
from broker_core.server.network.peer import Peer
from broker_core.server.runtime import start_broker
from tests.certificates import Certificates
from waylog.kafka.connection.sasl import SaslCredentials

GOOD = SaslCredentials("PLAIN", "broker", "right")
HEARTBEAT: Any = {
    "broker_id": 1,
    "broker_epoch": 1,
    "current_metadata_offset": 0,
    "want_fence": False,
    "want_shut_down": False,
}


@pytest.mark.parametrize(
    ("listener", "login", "trust", "says"),
    [
        ("SASL_PLAINTEXT", SaslCredentials("PLAIN", "broker", "no"), None, "the login of user bro"),
        ("SASL_SSL", SaslCredentials("PLAIN", "nobody", "no"), "right", "the login of user nobody"),
        ("SASL_SSL", SaslCredentials("SCRAM-SHA-256", "broker", "right"), "right", "is not one of"),
        ("SASL_SSL", GOOD, None, "set security.protocol=SASL_SSL"),
        ("SASL_PLAINTEXT", GOOD, "right", "set security.protocol=SASL_PLAINTEXT"),
        ("SSL", GOOD, "right", "set security.protocol=SSL"),
        ("SSL", None, "wrong", "not of an authority that this client trusts"),
    ],
)
async def test_the_reason_is_logged(
    listener: str,
    login: SaslCredentials | None,
    trust: str | None,
    says: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    certificates = Certificates(tmp_path / "right")
    trusts: Mapping[str, Certificates] = {
        "right": certificates,
        "wrong": Certificates(tmp_path / "wrong"),
    }
    broker = await start_broker(
        BrokerConfig.from_properties(
            {
                "listeners": f"{listener}://127.0.0.1:0",
                "log.dirs": str(tmp_path / "logs"),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(certificates.broker),
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.jaas.config": 'PlainLoginModule required user_broker="right";',
                "connection.failed.authentication.delay.ms": "5",
            }
        )
    )
    tls = None
    if trust is not None:
        authority = str(trusts[trust].authority)
        tls = client_context({"ssl.truststore.type": "PEM", "ssl.truststore.location": authority})
    peer = Peer(broker.endpoint, "node", tls=tls, login=login)
    try:
        async with asyncio.timeout(60):
            for _ in range(3):
                assert await peer.call(BROKER_HEARTBEAT, 0, HEARTBEAT) is None
            while " does not let us in: " not in caplog.text:
                await asyncio.sleep(0.05)
        said = [each.getMessage() for each in caplog.records if "let us in" in each.getMessage()]
        assert len(said) == 1
        assert says in said[0]
        assert "the properties are those of this node's" in said[0]
    finally:
        peer.close()
        await broker.close()
