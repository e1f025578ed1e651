"""Which keys a coordinator answers for: those whose partition of its topic this broker leads.

When it becomes the leader the partition's records are read first; when it is not any more, what was
read is forgotten. A broker that is a cluster of its own answers for all keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker_core import errors
from broker_core.server.coordination.internal_topic import InternalTopic
from broker_core.server.partitions.partition import Partition
from waylog.process.background import spawn

logger = logging.getLogger(__name__)

#: Reads a partition, a bit a step; what has been read counts when it is at its end.
Load = Callable[[Partition], Iterator[int]]

_RETRY_S: Final = 1.0
_PAUSE_S: Final = 0.1


class CoordinatorShards:
    """The partitions that are being read, and those that have been; a RoleListener."""

    def __init__(self, topic: InternalTopic, load: Load, unload: Callable[[int], None]) -> None:
        self._topic = topic
        self._load = load
        self._unload = unload
        self._active: set[int] = set()
        self._loading: dict[int, asyncio.Task[None]] = {}

    @property
    def is_loading(self) -> bool:
        """Tell whether something is not known yet."""
        return bool(self._loading)

    def refusal(self, key: str) -> int:
        """Why a key's requests are not answered here; 0 if they are."""
        try:
            index = self._topic.index_of(key)
        except errors.CoordinatorNotAvailable as error:
            return error.code
        if index in self._active:
            return errors.NONE
        if index in self._loading:
            return errors.CoordinatorLoadInProgress.code
        return errors.NotCoordinator.code

    def leads(self, partition: Partition) -> None:
        """See RoleListener."""
        self.resigned(partition)
        self._loading[partition.index] = spawn(self._run(partition), f"reading {partition}")

    def read_again(self, partition: Partition) -> None:
        """Begin again with what is stored, as soon as more can be."""
        index = partition.index
        if index in self._active:
            self.resigned(partition)
            self._loading[index] = spawn(self._wait_and_run(partition), f"reading {partition}")

    async def _wait_and_run(self, partition: Partition) -> None:
        while True:
            try:
                partition.check_can_commit()
                break
            except errors.BrokerError:
                await asyncio.sleep(_PAUSE_S)
        await self._run(partition)

    def resigned(self, partition: Partition) -> None:
        """See RoleListener."""
        index = partition.index
        loading = self._loading.pop(index, None)
        if loading is not None:
            loading.cancel()
        if index in self._active:
            self._active.discard(index)
            self._unload(index)

    async def _run(self, partition: Partition) -> None:
        index = partition.index
        while True:
            try:
                count = 0
                for each in self._load(partition):
                    count += each
                    await asyncio.sleep(0)
                break
            except errors.BrokerError as error:
                logger.error("%s cannot be read: %s", partition, error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                logger.exception("%s cannot be read", partition)
                await asyncio.sleep(_RETRY_S)
        del self._loading[index]
        self._active.add(index)
        logger.info("%s: coordinated here, %d records read", partition, count)

    def close(self) -> None:
        """Read nothing any more."""
        for loading in self._loading.values():
            loading.cancel()
        self._loading.clear()
