"""Delivers the records of one `put`, several at once and those of the same key in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from consumers.connect.data.exceptions import ConnectException, DataException
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.answers.status import Meaning
from consumers.connect.http.lanes import batches_of, lanes_of, order_key
from consumers.connect.http.properties import Settings
from consumers.connect.http.sender import Outcome, Sender, notice_closed_connections
from consumers.connect.http.templates.request import idempotency_key


class Refusal(NamedTuple):
    """A record that the server, or the template, does not take."""

    record: SinkRecord
    error: ConnectException


class Delivered:
    """What became of records: the others are to be sent again."""

    def __init__(self) -> None:
        self.done: Final[list[SinkRecord]] = []
        self.refused: Final[list[Refusal]] = []
        #: Records that a server has answered and not taken yet, with its words.
        self.postponed: Final[list[Refusal]] = []
        self.later: Outcome | None = None
        self.set_up: Outcome | None = None
        #: Whether some were not sent because the time was over.
        self.is_unfinished = False

    @property
    def is_interrupted(self) -> bool:
        """Tell whether no further request has to be begun."""
        return self.set_up is not None or (self.later is not None and not self.later.is_answered)

    def note_later(self, outcome: Outcome) -> None:
        """Take note that records have to be sent again; the longest pause counts."""
        before = self.later
        if before is None or not outcome.is_answered:
            self.later = outcome
        if before is not None and self.later is not None:
            pauses = [each.retry_after_s or 0.0 for each in (before, outcome)]
            self.later = self.later._replace(retry_after_s=max(pauses) or None)


async def deliver(
    records: Sequence[SinkRecord],
    settings: Settings,
    sender: Sender,
    *,
    until: float,
    is_last: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Delivered:
    """Send records, beginning no request after `until`, a time of `clock` in seconds.

    `is_last` says that what the server does not take now is given up, so that a batch is divided
    before.
    """
    result = Delivered()
    await notice_closed_connections()
    async with asyncio.TaskGroup() as tasks:
        for lane in lanes_of(records, settings.connections):
            sending = _Lane(settings, sender, result, until, is_last, clock)
            tasks.create_task(sending.send(lane))
    return result


class _Lane:
    def __init__(
        self,
        settings: Settings,
        sender: Sender,
        result: Delivered,
        until: float,
        is_last: bool,
        clock: Callable[[], float],
    ) -> None:
        self._is_last = is_last
        self._settings = settings
        self._sender = sender
        self._result = result
        self._until = until
        self._clock = clock
        #: Keys of records that were not taken yet, which later ones must not overtake.
        self._held: set[Any] = set()

    async def send(self, records: Sequence[SinkRecord]) -> None:
        """Send the records of a lane, one request after the other."""
        sendable = [each for each in records if self._is_sendable(each)]
        for batch in batches_of(sendable, self._settings.batch_records, self._target):
            await self._send_all_but_refused(batch)

    def _is_sendable(self, record: SinkRecord) -> bool:
        """Tell whether a record makes a request; one that does not is done."""
        if record.value is None and self._settings.nulls != "delete":
            if self._settings.nulls == "ignore":
                self._result.done.append(record)
            else:
                self._refuse(record, DataException("the record has no value"))
            return False
        try:
            self._target(record)
        except DataException as error:
            self._refuse(record, error)
            return False
        return True

    def _target(self, record: SinkRecord) -> Any:
        target = self._settings.template.target(record)
        # A deletion is a request of its own.
        return (target, record.original_offset) if record.value is None else target

    async def _send_all_but_refused(self, batch: list[SinkRecord]) -> None:
        """Send a batch; one that is refused is divided until the bad record is found."""
        waiting = [batch]
        while waiting:
            part = waiting.pop()
            if self._held:
                part = [each for each in part if order_key(each) not in self._held]
            if not part or self._result.is_interrupted:
                continue
            if self._clock() > self._until:
                self._result.is_unfinished = True
                return
            try:
                request = self._settings.template.request(part)
            except DataException as data_error:
                self._divide(part, data_error, waiting)
                continue
            outcome = await self._sender.send(request, idempotency_key(request, part))
            is_silent = not outcome.is_answered and outcome.is_from_server
            if self._is_last and is_silent and await self._sender.answers():
                # The server is there, and these records are what it does not answer.
                outcome = outcome._replace(is_answered=True)
            if outcome.meaning is Meaning.DELIVERED:
                self._result.done.extend(part)
            elif outcome.meaning is Meaning.REFUSED:
                self._divide(part, ConnectException(outcome.reason), waiting)
            elif outcome.meaning is Meaning.SET_UP:
                self._result.set_up = outcome
            elif self._is_last and outcome.is_answered and len(part) > 1:
                self._divide(part, ConnectException(outcome.reason), waiting)
            else:
                self._result.note_later(outcome)
                self._held.update(order_key(each) for each in part)
                if outcome.is_answered:
                    refusal = ConnectException(outcome.reason)
                    self._result.postponed.extend(Refusal(each, refusal) for each in part)

    def _divide(
        self, part: list[SinkRecord], error: ConnectException, waiting: list[list[SinkRecord]]
    ) -> None:
        if len(part) == 1:
            self._refuse(part[0], error)
            return
        half = len(part) // 2
        waiting.append(part[half:])
        waiting.append(part[:half])

    def _refuse(self, record: SinkRecord, error: ConnectException) -> None:
        self._result.refused.append(Refusal(record, error))
        self._result.done.append(record)
