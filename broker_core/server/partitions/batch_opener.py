"""Opens compressed batches beside the event loop: a request of a megabyte may expand to many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker_core import errors
from broker_core.environment import Worker, call_on_loop
from broker_core.log.config import LogConfig
from broker_core.log.validation import Batches, open_in_steps
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

#: Bytes of one party's batches, at least one batch, that are opened before it is another's turn.
_TURN_BYTES: Final = 64 * 1024


class Opening:
    """The batches of one request, while they are opened."""

    __slots__ = ("_closed", "_is_cancelled", "_steps", "done", "outcomes", "party")

    def __init__(self, party: str, closed: Sequence[Closed], done: _Done) -> None:
        self.party = party
        self.outcomes: list[Outcome] = []
        self.done = done
        self._closed = closed
        self._is_cancelled = False
        self._steps = self._open()

    def cancel(self) -> None:
        """Open nothing more, and do not call `done`."""
        self._is_cancelled = True

    @property
    def is_cancelled(self) -> bool:
        """True if nobody waits for the outcomes."""
        return self._is_cancelled

    def step(self) -> bool:
        """Open the batches of one turn; return False when all are open. Any thread may call it."""
        left = _TURN_BYTES
        for size in self._steps:
            left -= size
            if left <= 0 or self._is_cancelled:
                return True
        return False

    def _open(self) -> Iterator[int]:
        for each in self._closed:
            try:
                opened = yield from open_in_steps(each.batches, each.config, each.log_name)
                self.outcomes.append(Opened(*opened))
            except errors.BrokerError as error:
                # Tracebacks would keep what the batches have been expanded to.
                error.__cause__ = error.__context__ = None
                self.outcomes.append(error.with_traceback(None))
            except Exception as error:
                logger.exception("batches for %s could not be opened", each.log_name)
                self.outcomes.append(errors.UnknownServerError(f"{each.log_name}: {error}"))


class BatchOpener:
    """Opens the batches of one request after the other, parties in turn.

    All methods are called on the event loop's thread.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._waiting: PartyQueues[Opening] = PartyQueues()
        self._is_busy = False

    def open(self, party: str, closed: Sequence[Closed], done: _Done) -> Opening:
        """Call `done` with the outcomes, later; an error stands in the place of its batches."""
        opening = Opening(party, closed, done)
        self._waiting.add(party, opening)
        self._begin()
        return opening

    def close(self) -> None:
        """End the thread, when it has opened what it has begun with."""
        self._is_busy = True
        self._worker.close()

    def _begin(self) -> None:
        while self._waiting and not self._is_busy:
            _, opening = self._waiting.next()
            if not opening.is_cancelled:
                self._is_busy = True
                self._worker.submit(partial(self._open, opening))

    def _open(self, opening: Opening) -> None:
        call_on_loop(self._loop, self._opened, opening, opening.step())

    def _opened(self, opening: Opening, has_more: bool) -> None:
        if has_more:
            self._waiting.put_back(opening.party, opening)
        self._is_busy = False
        self._begin()
        if not has_more and not opening.is_cancelled:
            opening.done(opening.outcomes)
