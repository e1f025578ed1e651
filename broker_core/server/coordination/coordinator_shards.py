"""The keys that a coordinator serves: those whose partition of its topic this broker leads.

When this broker becomes leader of a partition, its records are loaded first; when it stops leading,
they are unloaded.
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

#: Loads a partition in steps, yielding record counts; the result takes effect at the end.
Load = Callable[[Partition], Iterator[int]]

_RETRY_S: Final = 1.0
_PAUSE_S: Final = 0.1


class CoordinatorShards:
    """The partitions that are being loaded, and those that are loaded; a RoleListener."""

    def __init__(self, topic: InternalTopic, load: Load, unload: Callable[[int], None]) -> None:
        self._topic = topic
        self._load = load
        self._unload = unload
        self._active: set[int] = set()
        self._loading: dict[int, asyncio.Task[None]] = {}

    @property
    def is_loading(self) -> bool:
        """Tell whether a partition is still being loaded."""
        return bool(self._loading)

    def refusal(self, key: str) -> int:
        """Return the error code for requests with this key; 0 if they are served here."""
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
        """Unload a partition and load it again, as soon as records can be committed."""
        index = partition.index
        if index in self._active:
            self.resigned(partition)
            self._loading[index] = spawn(self._wait_and_run(partition), f"reading {partition}")

    async def _wait_and_run(self, partition: Partition) -> None:
        while True:
            try:
                partition.check_in_sync()
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
        said = ""
        while True:
            try:
                count = 0
                for each in self._load(partition):
                    count += each
                    await asyncio.sleep(0)
                break
            except errors.BrokerError as error:
                if str(error) != said:
                    said = str(error)
                    self._tell(partition, error)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                logger.exception("%s cannot be read", partition)
                await asyncio.sleep(_RETRY_S)
        del self._loading[index]
        self._active.add(index)
        logger.info("%s: coordinated here, %d records read", partition, count)

    def _tell(self, partition: Partition, error: errors.BrokerError) -> None:
        if not isinstance(error, errors.CorruptMessage):
            logger.error("%s cannot be read: %s", partition, error)
            return
        logger.error(
            "%s: %s. What it coordinates waits, and clients try again "
            "(COORDINATOR_LOAD_IN_PROGRESS). Stop this broker and put a copy of %s back, or remove "
            "the folder if another replica is sound; to go on without what is in it, move the "
            "damaged file away",
            partition,
            error,
            partition.log.directory,
        )

    def close(self) -> None:
        """Stop loading."""
        for loading in self._loading.values():
            loading.cancel()
        self._loading.clear()
