"""Group commit: one thread makes logs durable, one fdatasync for all appends that wait for it."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from broker_core.errors import BrokerError
from broker_core.server.partition import Partition
from broker_core.server.request_metrics import Times

logger = logging.getLogger(__name__)

_Outcome = list[tuple[Partition, BrokerError | None]]


class Flusher:
    """Flushes partitions on request; all methods are called on the event loop's thread.

    While one round of flushes runs, further requests gather for the next: the slower the disk, the
    more appends share one fdatasync.
    """

    def __init__(self, on_failure: Callable[[Partition, BrokerError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._dirty: set[Partition] = set()
        self._busy = False
        #: How long flushes took; written by the thread that flushes.
        self.times = Times()
        self._rounds: queue.SimpleQueue[list[Partition] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    def request(self, partition: Partition) -> None:
        """Flush the partition, after what else this turn of the event loop appends."""
        if not self._dirty and not self._busy:
            self._busy = True
            self._loop.call_soon(self._start_round)
        self._dirty.add(partition)

    async def close(self, partitions: Iterable[Partition] = ()) -> None:
        """Flush `partitions` and everything requested, then end the thread."""
        for partition in partitions:
            self.request(partition)
        while self._busy or self._dirty:
            await asyncio.sleep(0.001)
        self._rounds.put(None)
        self._thread.join()

    def _start_round(self) -> None:
        batch, self._dirty = list(self._dirty), set()
        self._rounds.put(batch)

    def _run(self) -> None:
        while (batch := self._rounds.get()) is not None:
            outcome: _Outcome = []
            for partition in batch:
                began = time.perf_counter()
                try:
                    partition.log.flush()
                    self.times.add(time.perf_counter() - began)
                    outcome.append((partition, None))
                except BrokerError as error:
                    outcome.append((partition, error))
            try:
                self._loop.call_soon_threadsafe(self._finish_round, outcome)
            except RuntimeError:
                return  # the event loop was closed without us

    def _finish_round(self, outcome: _Outcome) -> None:
        if self._dirty:
            self._start_round()
        else:
            self._busy = False
        for partition, error in outcome:
            if partition.deleted:
                continue
            if error is not None:
                self._on_failure(partition, error)
            else:
                partition.advance()
