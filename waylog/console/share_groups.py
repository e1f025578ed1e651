"""Consumes as a member of a share group (KIP-932)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from waylog.administration.answers import Silence
from waylog.administration.log_access import TIMEOUT_S
from waylog.console.common import access_of, security
from waylog.kafka.connection.properties import configured_properties
from waylog.sealing.sealing import opener


def consume_shared(arguments: argparse.Namespace, line: Callable[[Message], bytes]) -> None:
    """Print the records that the group gives to this member, and accept each one printed.

    Raises KafkaException, LogUnreachable, and ConfigError for a master key that is missing or
    wrong. Ctrl-C ends it; records that were not printed go to other members.
    """
    # A minimum: librdkafka refuses some other settings for a share consumer.
    options = {
        "bootstrap.servers": arguments.bootstrap_servers,
        "client.id": "waylog-console",
        "group.id": arguments.share,
        "share.acknowledgement.mode": "explicit",
    }
    opened = opener(arguments.bootstrap_servers, properties=security(arguments))
    consumer: Any = ShareConsumer(options | configured_properties() | security(arguments))
    try:
        consumer.subscribe([arguments.topic])
        printed = 0
        silence = Silence(access_of(arguments), arguments.topic)
        while arguments.max is None or printed < arguments.max:
            messages = consumer.poll(0.2) or ()
            if messages:
                silence.ended()
            else:
                silence.check(brokers_matter=False)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                if arguments.max is not None and printed >= arguments.max:
                    consumer.acknowledge(message, AcknowledgeType.RELEASE)
                    continue
                for plain in opened([message]):
                    sys.stdout.buffer.write(line(plain))
                    printed += 1
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            sys.stdout.flush()
        consumer.commit_sync(TIMEOUT_S)
    finally:
        consumer.close()
