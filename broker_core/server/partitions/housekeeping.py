"""Periodic work on logs: flush by time, retention, compaction, closing of idle files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.log import Log
from broker_core.server.partitions.flusher import Flusher
from broker_core.server.partitions.maintenance_thread import MaintenanceThread
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.storage_watch import StorageWatch
from broker_core.server.partitions.topics import TopicRegistry
from waylog.process.background import PeriodicTask, spawn

#: Seconds between checks for idle files: a log is idle if it has not grown since the last check.
_PARK_INTERVAL_S: Final = 60.0
_LOOK_INTERVAL_S: Final = 1.0
#: Seconds without a step after which retention or compaction is told to hang, and after which that
#: ends the broker. To sync a gigabyte on a slow card is one step, of more than a minute.
_STANDSTILL_S: Final = 120.0
_STANDSTILL_MAX_S: Final = 600.0
#: Seconds after which a flush that has not returned ends the broker.
_FLUSH_MAX_S: Final = 120.0


class Housekeeping:
    """Runs periodic work; retention and compaction run in threads beside the event loop."""

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
        # writes a large part of a log.
        self._retention = MaintenanceThread("retention", environment, Log.apply_retention)
        self._compaction = MaintenanceThread("compaction", environment, Log.compact)
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
        for thread in (self._retention, self._compaction):
            thread.close()

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
        standing_s, standing = max(
            (thread.look(), str(thread)) for thread in (self._retention, self._compaction)
        )
        told = f"{standing} has made no step for more than {_STANDSTILL_S:.0f} s"
        self._storage.look(flush_s, told if standing_s > _STANDSTILL_S else None)
        # The disk, or the way to it, hangs. Another broker can lead only if this one ends.
        if flush_s > _FLUSH_MAX_S:
            self._cannot_go_on(TimeoutError(f"a flush has not returned for {flush_s:.0f} s"))
        if standing_s > _STANDSTILL_MAX_S:
            self._cannot_go_on(TimeoutError(f"{standing} has made no step for {standing_s:.0f} s"))
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
        await self._retention.round(list(self._topics.partitions()))

    async def _compact(self) -> None:
        await self._compaction.round(
            [each for each in self._topics.partitions() if each.log.config.compacts]
        )
