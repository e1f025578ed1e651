"""Reads topic `forwarding-progress` once, to its present end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from consumers.forwarding.ledger import RouteKey
from waylog.forwarding.definition import Progress, decode_progress, parse_progress_key
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.topics import FORWARDING_PROGRESS
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

#: By partition: how far each forwarding is.
AllProgress = dict[int, dict[RouteKey, Progress]]


async def read_progress(
    bootstrap_servers: str, client_id: str, opened: Callable[..., list[Any]]
) -> AllProgress:
    """Return how far all forwardings are; waits while the log is away."""
    found: Final[AllProgress] = {}
    done = asyncio.Event()

    def take(records: list[Any]) -> None:
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

    reader = BatchReader(
        bootstrap_servers,
        f"{client_id}-progress",
        FORWARDING_PROGRESS,
        asyncio.get_running_loop(),
        on_records=take,
        on_caught_up=done.set,
        opened=opened,
    )
    reader.start()
    try:
        await done.wait()
    finally:
        await reader.close()
    return found
