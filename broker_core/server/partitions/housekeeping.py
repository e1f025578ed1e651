"""Periodic work on logs: flush by time, retention, compaction, closing of idle files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.storage_watch import StorageWatch
from broker_core.server.partitions.topics import TopicRegistry
from waylog.process.background import PeriodicTask, spawn

logger = logging.getLogger(__name__)

#: Seconds between checks for idle files: a log is idle if it has not grown since the last check.
_PARK_INTERVAL_S: Final = 60.0
_LOOK_INTERVAL_S: Final = 1.0
#: Seconds after which retention or compaction of one log is told to take long.
_LONG_S: Final = 1800.0
#: Seconds after which a flush that has not returned ends the broker.
_FLUSH_MAX_S: Final = 120.0


class Housekeeping:
    """Runs periodic work; retention and compaction run in a thread beside the event loop."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        flusher: Flusher,
        environment: Environment,
        storage: StorageWatch,
        has_room: Callable[[], None],
        cannot_go_on: Callable[[Exception], None],
    ) -> None:
        """`has_room` is called each second in which the disk has room.

        `cannot_go_on` is called when the broker has to end.
        """
        self._has_room = has_room
        self._cannot_go_on = cannot_go_on
        self._storage = storage
        self._config = config
        self._topics = topics
        self._flusher = flusher
        self._tasks: list[asyncio.Task[None]] = []
        # Deleting a segment of a gigabyte takes the file system a while, and compaction reads and
        # writes a large part of a log: one thread does all of it, one log after the other.
        self._executor = environment.threads.executor(1, "housekeeping")
        self._clock = environment.clock
        self._cleaner_backoff_ms = config.cleaner_backoff_ms
        self._backoff_changed = asyncio.Event()
        # Log end offset of each partition at the last check for idle files.
        self._ends: dict[Partition, int] = {}
        # Monotonic ms at which a partition was first seen with records that are not flushed.
        self._dirty_since: dict[Partition, int] = {}

    def start(self) -> None:
        """Start the periodic tasks."""
        config = self._config
        self._every(config.flush_scheduler_interval_ms / 1000, "flush by time", self._flush_by_time)
        self._every(config.retention_check_interval_ms / 1000, "retention", self._retain)
        self._every(_LOOK_INTERVAL_S, "looking for room on the disk", self._look)
        self._every(_PARK_INTERVAL_S, "closing idle files", self._park)
        if config.cleaner_enable:
            self._tasks.append(spawn(self._compact_in_turn(), "compaction", endless=True))

    def _every(self, interval_s: float, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(PeriodicTask(name).spawn(interval_s, work))

    def set_cleaner_backoff(self, backoff_ms: int) -> None:
        """Set the pause between two rounds of compaction; the current one begins anew."""
        if backoff_ms != self._cleaner_backoff_ms:
            self._cleaner_backoff_ms = backoff_ms
            self._backoff_changed.set()

    async def _compact_in_turn(self) -> None:
        task = PeriodicTask("compaction")
        while True:
            self._backoff_changed.clear()
            try:
                async with asyncio.timeout(self._cleaner_backoff_ms / 1000):
                    await self._backoff_changed.wait()
            except TimeoutError:
                await task.once(self._compact)

    async def close(self) -> None:
        """Stop the tasks, and wait for work that is running; a compaction ends early."""
        for partition in self._topics.partitions():
            partition.log.end_maintenance()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._executor.shutdown()

    async def _flush_by_time(self) -> None:
        self.flush_due(int(self._clock.monotonic() * 1000))

    def flush_due(self, now_ms: int) -> None:
        """Flush logs that have waited for `flush.ms`, and logs that have closed a segment."""
        dirty: dict[Partition, int] = {}
        for partition in self._topics.partitions():
            log = partition.log
            if log.recovery_point >= log.log_end_offset:
                continue
            since = self._dirty_since.get(partition, now_ms)
            dirty[partition] = since
            if now_ms - since >= log.config.flush_ms or log.has_closed_segments_to_flush:
                self._flusher.request(partition)
        self._dirty_since = dirty

    async def _look(self) -> None:
        flush_s = self._flusher.waited_s
        self._storage.look(flush_s)
        if flush_s > _FLUSH_MAX_S:
            # The disk, or the way to it, hangs. Another broker can lead only if this one ends.
            self._cannot_go_on(TimeoutError(f"a flush has not returned for {flush_s:.0f} s"))
        if self._storage.reason is None:
            self._has_room()

    async def _park(self) -> None:
        self.park_idle()

    def park_idle(self) -> None:
        """Close the files of logs that have not been written since the last call."""
        ends: dict[Partition, int] = {}
        for partition in self._topics.partitions():
            end = ends[partition] = partition.log.log_end_offset
            if self._ends.get(partition) == end:
                partition.log.park()
        self._ends = ends

    async def _retain(self) -> None:
        for partition in list(self._topics.partitions()):
            await self._run(partition, "retention", partition.log.apply_retention)

    async def _compact(self) -> None:
        for partition in list(self._topics.partitions()):
            if partition.log.config.compacts:
                await self._run(partition, "compaction", partition.log.compact)

    async def _run(self, partition: Partition, what: str, work: Callable[[int], object]) -> None:
        if partition.deleted:
            return
        now_ms = self._clock.now_ms()
        loop = asyncio.get_running_loop()
        # One thread does it for all logs: nobody else has a turn while it hangs.
        told = f"{what} of {partition} takes more than {_LONG_S / 60:.0f} minutes"
        timer = loop.call_later(_LONG_S, logger.error, "%s", told)
        try:
            await loop.run_in_executor(self._executor, work, now_ms)
        except errors.BrokerError as error:
            if not partition.deleted:
                logger.error("%s of %s: %s", what, partition, error)
        except Exception:
            # A failure of one log must not keep the others from their turn.
            logger.exception("%s of %s failed", what, partition)
        finally:
            timer.cancel()
