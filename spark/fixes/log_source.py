"""Reads ranges of a topic's partitions as the history does: large batches, sealed values opened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from confluent_kafka import Message

from waylog.kafka.ranges.log_ranges import LogRanges, Range
from waylog.kafka.ranges.silence import BoundedSilence
from waylog.sealing.sealing import opener_if_configured

logger = logging.getLogger(__name__)

_FETCH_BYTES: Final = 8 * 1024 * 1024


class OffsetRange(NamedTuple):
    """Records start..end-1 of one partition."""

    partition: int
    start: int
    end: int


def open_log(bootstrap_servers: str) -> LogRanges:
    """Return a client for the offsets of topics and what is between them."""
    return LogRanges(
        bootstrap_servers,
        "waylog-history",
        queued_max_messages_kbytes=_FETCH_BYTES // 1024,
        fetch_max_bytes=_FETCH_BYTES,
    )


def read_range(
    bootstrap_servers: str,
    topic: str,
    wanted: OffsetRange,
    stopping: threading.Event | None = None,
) -> Iterator[list[Message]]:
    """Yield the records of one range in order, opened.

    Records that retention has deleted in the meantime are skipped with an error in the log; records
    whose key was destroyed are skipped without one. The read survives a restart of the broker.
    Raises LogUnreachable after a minute without progress (Spark then repeats the batch), or when
    nothing comes and `stopping` is set; LogForbidden for a missing right.
    """

    def tell_deleted(partition: int, first: int, last: int) -> None:
        logger.error(
            "%s-%d: records %d to %d were deleted before the history had read them",
            *(topic, partition, first, last),
        )

    opened = opener_if_configured(bootstrap_servers) or list
    log = open_log(bootstrap_servers)
    try:
        for records in log.read(
            topic,
            {wanted.partition: Range(wanted.start, wanted.end)},
            silence=BoundedSilence(bootstrap_servers, stopping),
            on_deleted=tell_deleted,
        ):
            if inside := opened(records):
                yield inside
    finally:
        log.close()
