"""Opens many replicas beside the event loop: a log takes two milliseconds, and the disk twice."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Final, Protocol

from broker_core import errors
from broker_core.environment import Worker, call_on_loop
from broker_core.server.partitions.inventory import PartitionInventory
from broker_core.server.partitions.replica_directories import (
    OpenedLog,
    Replica,
    ReplicaDirectories,
    UnusableReplica,
)
from broker_core.server.partitions.topic_waiters import TopicWaiters
from broker_core.server.partitions.topics import Topic

logger = logging.getLogger(__name__)

#: Replicas that the worker opens before it writes the inventory.
_BATCH: Final = 64
#: Replicas that begin to serve in one turn of the event loop.
_PIECE: Final = 8

#: The log of a replica, or why there is none.
Outcome = OpenedLog | UnusableReplica | errors.KafkaStorageError
_Opened = list[tuple[Replica, Outcome]]


class ReplicaOwner(Protocol):
    """Decides which replicas are opened, and takes them over; called on the event loop."""

    def wanted(self, topic: Topic, index: int) -> Replica | None:
        """Return the replica, None if it is not to be opened any more."""

    def deletions(self, topics: Iterable[str]) -> list[Future[None]]:
        """Return the deletions under way of logs of these names."""

    def not_saved(self, error: OSError) -> None:
        """Take note that the inventory could not be written; raises KafkaStorageError."""

    def take_over(self, opened: _Opened) -> None:
        """Let replicas serve that are in the inventory; raises KafkaStorageError."""

    def failed(self, error: Exception) -> None:
        """Take note that this broker cannot go on."""


class ReplicaOpener:
    """Opens replicas batch after batch; the topics that wait have their turns one by one.

    All methods are called on the event loop's thread.
    """

    def __init__(
        self,
        worker: Worker,
        directories: ReplicaDirectories,
        inventory: PartitionInventory,
        owner: ReplicaOwner,
    ) -> None:
        self._worker = worker
        self._directories = directories
        self._inventory = inventory
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Topic, dict[int, None]] = {}
        # Names of the topics of the batch that is under way.
        self._under_way: set[str] = set()
        self._opened: deque[tuple[Replica, Outcome]] = deque()
        self._waiters = TopicWaiters()
        self._closed = False

    def opens(self, name: str) -> bool:
        """Tell whether replicas of a topic of this name are being opened or wait for it."""
        return name in self._under_way or any(topic.name == name for topic in self._waiting)

    def add(self, topic: Topic, index: int) -> None:
        """Open a replica soon; do nothing if it waits already."""
        if not self._waiting:
            # After the others of the same image, which make a batch with it.
            self._loop.call_soon(self._begin)
        self._waiting.setdefault(topic, {})[index] = None

    def when_open(self, names: Iterable[str], timeout_s: float, then: Callable[[], None]) -> None:
        """Call `then` when no replica of these topics waits or is being opened, or on timeout."""
        self._waiters.wait(dict.fromkeys(names, 0), timeout_s, then)
        self._check_waiters()

    def _check_waiters(self) -> None:
        if self._waiters:
            opened_later = self._under_way.union(topic.name for topic in self._waiting)
            self._waiters.check(lambda name, _: name not in opened_later)

    async def close(self, timeout_s: float = math.inf) -> None:
        """Open no more, and return when the owner has taken over what is being opened.

        After `timeout_s` it waits no longer for a batch, which may have failed unexpectedly.
        """
        self._closed = True
        deadline = self._loop.time() + timeout_s
        while self._under_way and self._loop.time() < deadline:
            await asyncio.sleep(0.001)
        self._waiters.close()
        if not self._under_way:
            # A thread that hangs would be waited for without end.
            self._worker.close()

    def _begin(self) -> None:
        if self._under_way or self._closed:
            return
        batch = self._next_batch()
        if batch:
            self._under_way = {replica.topic.name for replica in batch}
            deletions = self._owner.deletions(self._under_way)
            self._worker.submit(partial(self._open, batch, deletions))
        else:
            # Topics that were waited for may have been deleted.
            self._check_waiters()

    def _next_batch(self) -> list[Replica]:
        batch: list[Replica] = []
        while self._waiting and len(batch) < _BATCH:
            topic = next(iter(self._waiting))
            indexes = self._waiting.pop(topic)
            index = next(iter(indexes))
            del indexes[index]
            if indexes:
                self._waiting[topic] = indexes
            replica = self._owner.wanted(topic, index)
            if replica is not None:
                batch.append(replica)
        return batch

    # ---------------------------------------------------------------------------- in the worker

    def _open(self, batch: list[Replica], deletions: list[Future[None]]) -> None:
        for deletion in deletions:
            deletion.exception()  # it has been logged
        opened = [(each, self._outcome(each)) for each in batch]
        call_on_loop(self._loop, self._add_to_inventory, opened)

    def _outcome(self, replica: Replica) -> Outcome:
        try:
            return self._directories.open(replica)
        except (UnusableReplica, errors.KafkaStorageError) as error:
            return error
        except Exception as error:
            logger.exception("%s could not be opened", replica)
            return errors.KafkaStorageError(f"{replica}: {error}")

    def _save(self, opened: _Opened) -> None:
        failure: OSError | None = None
        try:
            self._inventory.save()
        except OSError as error:
            failure = error
        call_on_loop(self._loop, self._saved, opened, failure)

    # ------------------------------------------------------------------------- on the event loop

    def _add_to_inventory(self, opened: _Opened) -> None:
        for replica, outcome in opened:
            wanted = self._owner.wanted(replica.topic, replica.index)
            if wanted is not None and isinstance(outcome, OpenedLog) and outcome.is_marked:
                self._inventory.add(*replica.in_inventory)
        self._worker.submit(partial(self._save, opened))

    def _saved(self, opened: _Opened, failure: OSError | None) -> None:
        if failure is not None:
            try:
                self._owner.not_saved(failure)
            except errors.KafkaStorageError as error:
                self._closed, self._under_way = True, set()
                self._owner.failed(error)
                return
        self._opened.extend(opened)
        self._take_over()

    def _take_over(self) -> None:
        piece = list(islice(self._opened, _PIECE))
        for _ in piece:
            self._opened.popleft()
        try:
            self._owner.take_over(piece)
        except Exception as error:
            self._owner.failed(error)
        if self._opened:
            self._loop.call_soon(self._take_over)
            return
        self._under_way = set()
        self._begin()
        self._check_waiters()
