"""Opens compressed batches beside the event loop: a request of a megabyte may expand to many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from broker_core import errors
from broker_core.environment import Worker, call_on_loop
from broker_core.log.config import LogConfig
from broker_core.log.validation import Batches, open_batches
from broker_core.protocol.records import BatchHeader
from waylog.network.party_queues import PartyQueues

logger = logging.getLogger(__name__)


class Closed(NamedTuple):
    """Batches as a producer sends them, to a log with these settings."""

    batches: bytearray
    config: LogConfig
    log_name: str


class Opened(NamedTuple):
    """Batches; with headers, in the form to be stored, without, as the log can open them itself."""

    batches: Batches
    headers: list[BatchHeader] | None


Outcome = Opened | errors.BrokerError
_Done = Callable[[list[Outcome]], None]


@dataclass(frozen=True, slots=True)
class _Job:
    closed: Sequence[Closed]
    done: _Done


class BatchOpener:
    """Opens the batches of one request at a time, parties in turn.

    All methods are called on the event loop's thread.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._waiting: PartyQueues[_Job] = PartyQueues()
        self._is_busy = False

    def open(self, party: str, closed: Sequence[Closed], done: _Done) -> None:
        """Call `done` with the outcomes, later; an error stands in the place of its batches."""
        self._waiting.add(party, _Job(closed, done))
        self._begin()

    def close(self) -> None:
        """End the thread, when it has opened what it has begun with."""
        self._is_busy = True
        self._worker.close()

    def _begin(self) -> None:
        if self._waiting and not self._is_busy:
            self._is_busy = True
            _, job = self._waiting.next()
            self._worker.submit(partial(self._open, job))

    def _open(self, job: _Job) -> None:
        outcomes = [_outcome(each) for each in job.closed]
        call_on_loop(self._loop, self._opened, job.done, outcomes)

    def _opened(self, done: _Done, outcomes: list[Outcome]) -> None:
        self._is_busy = False
        self._begin()
        done(outcomes)


def _outcome(closed: Closed) -> Outcome:
    try:
        return Opened(*open_batches(closed.batches, closed.config, closed.log_name))
    except errors.BrokerError as error:
        # Tracebacks would keep what the batches have been expanded to.
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    except Exception as error:
        logger.exception("batches for %s could not be opened", closed.log_name)
        return errors.UnknownServerError(f"{closed.log_name}: {error}")
