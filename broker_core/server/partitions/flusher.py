"""Group commit: one worker flushes logs, and appends that wait for a log share an fdatasync."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from functools import partial

from broker_core.environment import Clock, Worker, call_on_loop
from broker_core.errors import BrokerError, KafkaStorageError
from broker_core.server.network.request_metrics import Times
from broker_core.server.partitions.partition import AppendWaiter, Partition

logger = logging.getLogger(__name__)

_Outcome = list[tuple[Partition, BrokerError | None]]


class Flusher:
    """Flushes partitions on request; all methods are called on the event loop's thread.

    Requests that arrive during a round of flushes are gathered for the next round: the slower the
    disk, the more appends share one fdatasync.
    """

    def __init__(
        self,
        worker: Worker,
        clock: Clock,
        on_failure: Callable[[Partition, BrokerError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        # Partitions to flush in the next round, in the order of the requests.
        self._dirty: dict[Partition, None] = {}
        self._busy = False
        self._clock = clock
        # Monotonic time at which the flush under way began; written by the worker.
        self._began: float | None = None
        #: Durations of the flushes; written by the worker.
        self.times = Times()
        self._worker = worker

    @property
    def waited_s(self) -> float:
        """Seconds that the flush under way has taken so far; 0 without one."""
        began = self._began
        return 0.0 if began is None else self._clock.monotonic() - began

    def request(self, partition: Partition) -> None:
        """Flush the partition after everything that this iteration of the event loop appends."""
        if not self._dirty and not self._busy:
            self._busy = True
            self._loop.call_soon(self._start_round)
        self._dirty[partition] = None

    def appended(self, partition: Partition) -> None:
        """Flush an append without a waiter, if enough records are unflushed (flush.messages)."""
        log = partition.log
        if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            self.request(partition)

    def wait_durable(self, partition: Partition, waiter: AppendWaiter, end_offset: int) -> None:
        """Tell a coordinator's waiter when its append is committed, perhaps at once."""
        partition.wait_durable(waiter, end_offset)
        if partition.acknowledges_after_flush:
            self.request(partition)
        else:
            partition.advance()

    async def close(
        self, partitions: Iterable[Partition] = (), *, timeout_s: float = math.inf
    ) -> None:
        """Flush `partitions` and everything requested, then end the worker.

        After `timeout_s` it waits no longer for a round, which may have failed unexpectedly.
        """
        for partition in partitions:
            self.request(partition)
        deadline = self._loop.time() + timeout_s
        while (self._busy or self._dirty) and self._loop.time() < deadline:
            await asyncio.sleep(0.001)
        if not self._busy:
            # A thread that hangs would be waited for without end.
            self._worker.close()

    def _start_round(self) -> None:
        batch, self._dirty = list(self._dirty), {}
        self._worker.submit(partial(self._flush, batch))

    def _flush(self, batch: list[Partition]) -> None:
        outcome: _Outcome = []
        for partition in batch:
            self._began = began = self._clock.monotonic()
            try:
                partition.log.flush()
                self.times.add(self._clock.monotonic() - began)
                outcome.append((partition, None))
            except BrokerError as error:
                outcome.append((partition, error))
            except Exception as error:
                logger.exception("the flush of %s failed", partition)
                outcome.append((partition, KafkaStorageError(f"{partition}: {error}")))
        self._began = None
        call_on_loop(self._loop, self._finish_round, outcome)

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
                continue
            try:
                partition.advance()
            except Exception as failure:
                # Its waiters are told of the failure; those of other partitions must not wait.
                logger.exception("the appends to %s could not be acknowledged", partition)
                self._on_failure(partition, KafkaStorageError(f"{partition}: {failure}"))
