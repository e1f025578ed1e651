"""Share groups (KIP-932): who there are, and reading as a member of one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from waylog.console.common import TIMEOUT_S, security

#: Names of librdkafka's settings, which our commands take, as kafka-python has them.
_SETTINGS: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


def list_share_groups(arguments: argparse.Namespace) -> dict[str, str]:
    """State by name; none where the cluster has no such groups.

    librdkafka's admin client leaves them out.
    """
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    settings = {
        _SETTINGS[name]: value for name, value in security(arguments).items() if name in _SETTINGS
    }
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=arguments.bootstrap_servers.split(","),
            client_id="waylog-console",
            request_timeout_ms=int(TIMEOUT_S * 1000),
            **settings,
        )
    except KafkaError:
        return {}
    try:
        found = admin.list_groups(types_filter=["share"])
    except KafkaError:
        return {}  # before Kafka 4
    finally:
        admin.close()
    return {each["group_id"]: each["group_state"].lower() for each in found}


def consume_shared(arguments: argparse.Namespace, line: Callable[[Message], bytes]) -> None:
    """Print what the group gives to this member; each record is accepted when it is printed.

    Raises KafkaException. Ctrl-C ends it; what was not printed goes to others.
    """
    # Of other settings librdkafka refuses some here.
    options = {
        "bootstrap.servers": arguments.bootstrap_servers,
        "client.id": "waylog-console",
        "group.id": arguments.share,
        "share.acknowledgement.mode": "explicit",
    }
    consumer: Any = ShareConsumer(options | security(arguments))
    try:
        consumer.subscribe([arguments.topic])
        printed = 0
        while arguments.max is None or printed < arguments.max:
            for message in consumer.poll(0.2) or ():
                if message.error() is not None:
                    raise KafkaException(message.error())
                if arguments.max is not None and printed >= arguments.max:
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)
                    continue
                sys.stdout.buffer.write(line(message))
                printed += 1
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            sys.stdout.flush()
        consumer.commit_sync(TIMEOUT_S)
    finally:
        consumer.close()
