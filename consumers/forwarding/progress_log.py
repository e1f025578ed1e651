"""Reads topic `forwarding-progress` once, to its present end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import KafkaException

from consumers.forwarding.ledger import RouteKey
from consumers.worker.partitions import PartitionReader
from waylog.forwarding.definition import Progress, decode_progress, parse_progress_key
from waylog.kafka.clients import LogUnreachable, client_config
from waylog.kafka.errors import error_text
from waylog.kafka.topics import FORWARDING_PROGRESS
from waylog.malformed import MALFORMED
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.2

#: By partition: how far each forwarding is.
AllProgress = dict[int, dict[RouteKey, Progress]]


async def read_progress(
    bootstrap_servers: str, client_id: str, opened: Callable[..., list[Any]]
) -> AllProgress:
    """Return how far all forwardings are; waits while the log is away.

    And until the transactions are decided that are open now: somebody who has just given a
    partition back may have committed one whose end the topic does not have yet.
    """
    config = client_config(bootstrap_servers, f"{client_id}-progress")
    stopping = threading.Event()
    try:
        return await asyncio.to_thread(_read, config, opened, stopping)
    finally:
        stopping.set()


def _read(
    config: dict[str, Any], opened: Callable[..., list[Any]], stopping: threading.Event
) -> AllProgress:
    failure = RepeatedFailure()
    reader = PartitionReader(config, f"{config['client.id']}-none")
    try:
        while not stopping.is_set():
            try:
                found: AllProgress = {}
                for partition in reader.partitions(FORWARDING_PROGRESS):
                    start, end = reader.bounds(FORWARDING_PROGRESS, partition)
                    for records in reader.batches(
                        *(FORWARDING_PROGRESS, partition, start, end), stopped=stopping.is_set
                    ):
                        _take(opened(records), found)
            except (KafkaException, LogUnreachable) as error:
                if failure.is_new(error):
                    logger.warning("topic %s: %s", FORWARDING_PROGRESS, error_text(error))
                stopping.wait(_PAUSE_S)
            else:
                return found
        return {}
    finally:
        reader.close()


def _take(records: Iterable[Any], found: AllProgress) -> None:
    for record in records:
        try:
            user, forwarding_id, partition = parse_progress_key(record.key() or b"")
            value = record.value()
            progress = None if value is None else decode_progress(value)
        except MALFORMED:
            logger.warning("a record of topic %s is no progress of ours", FORWARDING_PROGRESS)
            continue
        of_partition = found.setdefault(partition, {})
        if progress is None:
            of_partition.pop((user, forwarding_id), None)
        else:
            of_partition[user, forwarding_id] = progress
