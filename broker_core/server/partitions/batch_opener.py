"""Opens compressed batches beside the event loop: a request of a megabyte may expand to many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker_core import errors
from broker_core.environment import Worker, call_on_loop
from broker_core.log import validation
from broker_core.log.config import LogConfig
from broker_core.protocol.batch_header import BatchHeader
from waylog.network.party_queues import PartyQueues

logger = logging.getLogger(__name__)


class Closed(NamedTuple):
    """Batches as a producer sends them, to a log with these settings."""

    batches: bytearray
    config: LogConfig
    log_name: str


class Opened(NamedTuple):
    """Batches; with headers, in the form to be stored, without, as the log can open them itself."""

    batches: validation.Batches
    headers: list[BatchHeader] | None


Outcome = Opened | errors.BrokerError
#: Bytes of one party's batches, at least one batch, that are opened before it is another's turn.
_TURN_BYTES: Final = 64 * 1024
#: Bytes of batches that are opened for clients that have gone, having asked for no answer.
_DEPARTED_BYTES_MAX: Final = 32 * 1024 * 1024


class Opening:
    """Batches of one request, while they are opened.

    `steps` opens one in each step, and yields its size in bytes.
    """

    __slots__ = ("_is_cancelled", "_is_running", "_steps", "departed_bytes", "done", "party")

    def __init__(self, party: str, steps: Iterator[int], done: Callable[[], None]) -> None:
        self.party = party
        self.done = done
        #: Bytes that are counted since the client has gone.
        self.departed_bytes = 0
        self._is_cancelled = self._is_running = False
        self._steps = steps

    def cancel(self) -> None:
        """Open nothing more, do not call `done`, and forget both."""
        self._is_cancelled = True
        if not self._is_running:
            self._forget()

    @property
    def is_cancelled(self) -> bool:
        """True if nobody waits for the batches."""
        return self._is_cancelled

    def begin_turn(self) -> None:
        """Take note that another thread is about to take a turn."""
        self._is_running = True

    def end_turn(self) -> None:
        """Take note that the other thread has taken its turn."""
        self._is_running = False
        if self._is_cancelled:
            self._forget()

    def step(self) -> bool:
        """Open the batches of one turn; return False when all are open. Any thread may call it."""
        left = _TURN_BYTES
        for size in self._steps:
            left -= size
            if left <= 0 or self._is_cancelled:
                return True
        return False

    def _forget(self) -> None:
        # It may wait behind many others until it is passed over.
        self._steps = iter(())
        self.done = _do_nothing


def _do_nothing() -> None:
    pass


class BatchOpener:
    """Opens the batches of one request after the other, parties in turn.

    All methods are called on the event loop's thread.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.get_running_loop()
        self._waiting: PartyQueues[Opening] = PartyQueues()
        self._is_busy = False
        self._departed_bytes = 0

    def open(
        self, party: str, closed: Sequence[Closed], done: Callable[[list[Outcome]], None]
    ) -> Opening:
        """Call `done` with the outcomes, later; an error stands in the place of its batches."""
        outcomes: list[Outcome] = []
        return self.take(party, _opened(closed, outcomes), lambda: done(outcomes))

    def take(self, party: str, steps: Iterator[int], done: Callable[[], None]) -> Opening:
        """Take steps that open batches beside the event loop, see Opening; then call `done`.

        A step must not raise.
        """
        opening = Opening(party, steps, done)
        self._waiting.add(party, opening)
        self._begin()
        return opening

    def client_has_gone(self, opening: Opening, size: int) -> None:
        """Go on for a client that has gone and wants no answer, unless many such bytes wait."""
        if self._departed_bytes + size > _DEPARTED_BYTES_MAX:
            opening.cancel()
        else:
            self._departed_bytes += size
            opening.departed_bytes = size

    def close(self) -> None:
        """End the thread, when it has opened what it has begun with."""
        self._is_busy = True
        self._worker.close()

    def _begin(self) -> None:
        while self._waiting and not self._is_busy:
            _, opening = self._waiting.next()
            if not opening.is_cancelled:
                self._is_busy = True
                opening.begin_turn()
                self._worker.submit(partial(self._step, opening))

    def _step(self, opening: Opening) -> None:
        call_on_loop(self._loop, self._stepped, opening, opening.step())

    def _stepped(self, opening: Opening, has_more: bool) -> None:
        opening.end_turn()
        if has_more:
            self._waiting.put_back(opening.party, opening)
        else:
            self._departed_bytes -= opening.departed_bytes
        self._is_busy = False
        self._begin()
        if not has_more:
            opening.done()


def open_if_cheap(closed: Closed) -> Outcome | None:
    """Open batches at once, or return None if that may take long."""
    try:
        opened = validation.open_if_cheap(*closed)
    except Exception as error:
        return _failed(closed, error)
    return None if opened is None else Opened(*opened)


def _opened(closed: Sequence[Closed], outcomes: list[Outcome]) -> Iterator[int]:
    for each in closed:
        try:
            opened = yield from validation.open_in_steps(*each)
            outcomes.append(Opened(*opened))
        except Exception as error:
            outcomes.append(_failed(each, error))


def _failed(closed: Closed, error: Exception) -> errors.BrokerError:
    if not isinstance(error, errors.BrokerError):
        logger.exception("batches for %s could not be opened", closed.log_name)
        return errors.UnknownServerError(f"{closed.log_name}: {error}")
    # Tracebacks would keep what the batches have been expanded to.
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
