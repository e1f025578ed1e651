"""A worker whose account lacks the right on transactional ids says so, and goes on once it has it.

The log is our broker, or Apache Kafka (-m kafka).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.consumers.connect.http.http_server import HttpServer
from tests.consumers.forwarding.running import LOOPBACK, Platform, lats
from tests.consumers.running import await_condition
from tests.contract.test_security import Secured, allow, root, secured
from waylog.kafka.topics import LOCATION

# Fixtures of another module.
__all__ = ["root", "secured"]

LOGIN: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "plain",
    "sasl.password": "plain-pw",
}


def test_a_worker_that_may_write_no_transactions_says_so_and_goes_on_once_it_may(
    secured: Secured, root: AdminClient, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in LOGIN.items()))
    properties.chmod(0o600)
    platform, server = Platform(secured.plaintext, tmp_path), HttpServer()
    platform.environment["WAYLOG_KAFKA_CONFIG"] = str(properties)
    allow(root, AclOperation.ALL, "forwarding", ResourceType.GROUP)
    allow(root, AclOperation.CREATE, "kafka-cluster", ResourceType.BROKER)
    allow(root, AclOperation.ALL, "*")
    # Apache Kafka applies rules a bit later.
    account = AdminClient(LOGIN | {"bootstrap.servers": secured.login})
    await_condition(
        lambda: account.list_topics(LOCATION, timeout=60).topics[LOCATION].error is None,
        *(60, "the rules count"),
    )
    try:
        with server.running():
            worker = platform.start(*LOOPBACK, "--bootstrap-servers", secured.login)
            worker.wait_for(
                r"not stored: transactional id forwarding-\S+ is forbidden: the user as whom this "
                r"client logs in needs the right WRITE on it"
            )
            platform.put("anna", 1, f"{server.url}/")
            sent = platform.fixes("anna/phone", 3)
            await_condition(lambda: set(sent) <= set(lats(server)), 60, "all have come")
            assert platform.shown("anna", 1)["state"] == "new"
            allow(
                *(root, AclOperation.WRITE, "forwarding-", ResourceType.TRANSACTIONAL_ID),
                pattern=ResourcePatternType.PREFIXED,
            )
            await_condition(lambda: platform.shown("anna", 1)["state"] == "live", 60, "it is told")
    finally:
        platform.close()
