"""Waits for the Kafka cluster of a worker that starts."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from consumers.connect.tasks.client_properties import ClientProperties
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text
from waylog.kafka.reach import silence_reason

logger = logging.getLogger(__name__)

#: Seconds for which a start waits for the cluster, as in Kafka.
WAIT_S: Final = 60.0
_ASK_S: Final = 3.0
_SAY_AGAIN_S: Final = 15.0


def cluster_id(
    clients: ClientProperties, bootstrap_servers: str, stopping: threading.Event
) -> str | None:
    """Return the id of the cluster, None if the worker is to stop meanwhile.

    Blocks until a broker answers; raises LogUnreachable after a minute, ConfigException for
    properties that are not valid, KafkaException for those that librdkafka refuses.
    """
    admin = AdminClient(clients.admin("connect-worker"))
    deadline = time.monotonic() + WAIT_S
    said_at = -_SAY_AGAIN_S
    while not stopping.is_set():
        try:
            found: str | None = admin.list_topics(timeout=_ASK_S).cluster_id
        except KafkaException as error:
            now = time.monotonic()
            reason = silence_reason(bootstrap_servers) or error_text(error)
            if now > deadline:
                raise LogUnreachable(
                    "Failed to connect to and describe Kafka cluster. Check worker's broker "
                    f"connection and security properties: {reason}"
                ) from error
            if now - said_at >= _SAY_AGAIN_S:
                said_at = now
                logger.warning("waiting for the Kafka cluster: %s", reason)
            stopping.wait(0.5)
        else:
            return found or ""
    return None
