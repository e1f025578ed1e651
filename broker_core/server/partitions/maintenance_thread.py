"""A thread that retains or compacts logs, one after the other, beside the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker_core import errors
from broker_core.environment import Environment
from broker_core.log import Log
from broker_core.server.partitions.partition import Partition
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

#: Seconds after which the work on one log is told to take long.
_LONG_S: Final = 1800.0


class MaintenanceThread:
    """Does one kind of work on logs; all methods are called on the event loop's thread."""

    def __init__(
        self, name: str, environment: Environment, work: Callable[[Log, int], object]
    ) -> None:
        """`work` is called with a log and the time, in ms since 1970; it counts its steps."""
        self._name = name
        self._work = work
        self._clock = environment.clock
        self._executor = environment.threads.executor(1, name)
        # Failures of the last round: one that lasts is logged once.
        self._failures: dict[Partition, RepeatedFailure] = {}
        self._partition: Partition | None = None
        # How many steps its log had made when they were last seen to grow, and when that was.
        self._steps = 0
        self._stepped_at = 0.0

    def __str__(self) -> str:
        return f"{self._name} of {self._partition}"

    async def round(self, partitions: Iterable[Partition]) -> None:
        """Work on the logs of these partitions, one after the other."""
        former, self._failures = self._failures, {}
        for partition in partitions:
            if partition.deleted:
                continue
            error = await self._run(partition)
            if error is None or partition.deleted:
                continue
            failure = self._failures[partition] = former.get(partition, RepeatedFailure())
            if not failure.is_new(error):
                continue
            # A failure of one log must not keep the others from their turn.
            if isinstance(error, errors.BrokerError):
                logger.error("%s of %s: %s", self._name, partition, error)
            else:
                logger.error("%s of %s failed", self._name, partition, exc_info=error)

    async def _run(self, partition: Partition) -> Exception | None:
        loop = asyncio.get_running_loop()
        told = f"{self._name} of {partition} takes more than {_LONG_S / 60:.0f} minutes"
        timer = loop.call_later(_LONG_S, logger.warning, "%s", told)
        self._partition, self._steps = partition, partition.log.maintenance_steps
        self._stepped_at = self._clock.monotonic()
        try:
            await loop.run_in_executor(
                self._executor, self._work, partition.log, self._clock.now_ms()
            )
        except Exception as error:
            return error
        finally:
            self._partition = None
            timer.cancel()
        return None

    def look(self) -> float:
        """Return how many seconds ago the work made its last step, as far as looks tell.

        0 if there is no work.
        """
        if self._partition is None:
            return 0.0
        now, steps = self._clock.monotonic(), self._partition.log.maintenance_steps
        if steps != self._steps:
            self._steps, self._stepped_at = steps, now
        return now - self._stepped_at

    def close(self) -> None:
        """Wait for the work that is under way."""
        self._executor.shutdown()
