"""A broker process whose clients log in and have the rights that a test gives them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.contract.broker_process import BrokerProcess
from tests.ports import reserved_ports
from waylog.kafka.clients import ensure_topics

_LOGGER = logging.getLogger("librdkafka")
_SECURITY = {
    "listener_security_protocol_map": "LOGIN:SASL_PLAINTEXT",
    "listener_name_login_sasl_enabled_mechanisms": "PLAIN",
    "listener_name_login_plain_sasl_jaas_config": (
        'PlainLoginModule required user_anna="anna-pw" user_bert="bert-pw";'
    ),
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Clients that connect without a name, from this machine, are administrators.
    "super_users": "User:ANONYMOUS",
}


class SecuredLog(NamedTuple):
    """A log with the platform's topics, on which `anna` may do what she was allowed."""

    #: The address for the super user, and the one where others log in.
    plaintext: str
    login: str
    folder: Path

    def allow(self, kind: str, name: str, *operations: str) -> None:
        """Allow anna some operations on a resource, for example ("topic", "location", "read")."""
        admin = AdminClient({"bootstrap.servers": self.plaintext}, logger=_LOGGER)
        rules = [
            AclBinding(
                ResourceType[kind.upper()],
                name,
                ResourcePatternType.LITERAL,
                "User:anna",
                "*",
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for done in admin.create_acls(rules).values():
            done.result(30)

    def properties(self, **more: str) -> Path:
        """Write the properties with which anna logs in, and others; return the file."""
        lines = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'PlainLoginModule required username="anna" password="anna-pw";',
        } | {name.replace("_", "."): value for name, value in more.items()}
        path = self.folder / "client.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return path

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that logs in as anna."""
        return os.environ | {"WAYLOG_KAFKA_CONFIG": str(self.properties())}


@contextmanager
def secured_log(folder: Path) -> Iterator[SecuredLog]:
    """Run such a broker."""
    plaintext, login = (f"127.0.0.1:{port}" for port in reserved_ports(2))
    folder.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(
        folder, **_SECURITY | {"listeners": f"PLAINTEXT://{plaintext},LOGIN://{login}"}
    )
    broker.start()
    try:
        ensure_topics(plaintext)
        yield SecuredLog(plaintext, login, folder)
    finally:
        broker.stop()
