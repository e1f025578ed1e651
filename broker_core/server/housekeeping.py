"""What has to be done now and then: flush by time, retention."""

from __future__ import annotations

import asyncio
import logging
import time

from broker_core import errors
from broker_core.config import BrokerConfig
from broker_core.server.flusher import Flusher
from broker_core.server.partition import Partition
from broker_core.server.topics import TopicRegistry

logger = logging.getLogger(__name__)


class Housekeeping:
    """Periodic work, away from the event loop where it may take long."""

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, flusher: Flusher) -> None:
        self._config = config
        self._topics = topics
        self._flusher = flusher
        self._tasks: list[asyncio.Task[None]] = []
        # When a partition was first seen with records that are not flushed (monotonic ms).
        self._dirty_since: dict[Partition, int] = {}

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._flush_by_time()),
            asyncio.create_task(self._retain()),
        ]

    async def close(self) -> None:
        """End; a deletion that runs is finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _flush_by_time(self) -> None:
        interval_s = self._config.flush_scheduler_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            self.flush_due(time.monotonic_ns() // 1_000_000)

    def flush_due(self, now_ms: int) -> None:
        """Flush what has been waiting for `flush.ms`."""
        dirty: dict[Partition, int] = {}
        for partition in self._topics.partitions():
            log = partition.log
            if log.recovery_point >= log.log_end_offset:
                continue
            since = self._dirty_since.get(partition, now_ms)
            dirty[partition] = since
            if now_ms - since >= log.config.flush_ms:
                self._flusher.request(partition)
        self._dirty_since = dirty

    async def _retain(self) -> None:
        interval_s = self._config.retention_check_interval_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(interval_s)
            now_ms = time.time_ns() // 1_000_000
            for partition in list(self._topics.partitions()):
                if partition.deleted:
                    continue
                try:
                    # Deleting a segment of a gigabyte takes the file system a while.
                    await loop.run_in_executor(None, partition.log.apply_retention, now_ms)
                except errors.KafkaStorageError as error:
                    if not partition.deleted:
                        logger.error("retention of %s: %s", partition, error)
