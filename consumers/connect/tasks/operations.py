"""Carries out what a task does with a record, and what its error handling decides."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

import msgspec

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.data.records import SourceRecord
from consumers.connect.errors.dead_letters import DeadLetter
from consumers.connect.errors.error_handling import ErrorHandling, Fail, Skip, TryAgain
from consumers.connect.errors.failures import ConsumedRecord, Failure
from consumers.connect.errors.settings import ErrorSettings
from consumers.connect.errors.stages import Stage
from consumers.connect.observability.measures import Measure
from consumers.connect.storage.states import TaskId
from consumers.connect.tasks.dead_letter_writer import DeadLetterWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: A task that fails waits this long for the dead letter that tells why.
_LAST_LETTER_S: Final = 30.0
#: Counters end with -total for whoever collects them.
_ATTRIBUTES: Final = {
    "total_record_failures": "record-failures-total",
    "total_record_errors": "record-errors-total",
    "total_records_skipped": "records-skipped-total",
    "total_retries": "retries-total",
    "total_errors_logged": "errors-logged-total",
    "deadletterqueue_produce_requests": "deadletterqueue-produce-requests-total",
    "deadletterqueue_produce_failures": "deadletterqueue-produce-failures-total",
}


class Skipped(Exception):
    """The record is left out; everything that was to be said of it has been said."""


def now_ms() -> int:
    """Return milliseconds since 1970-01-01 UTC."""
    return round(time.time() * 1000)


class Operations:
    """The operations of one task, called in its thread; `failed` may be called in any."""

    def __init__(
        self,
        task: TaskId,
        settings: ErrorSettings,
        stopping: threading.Event,
        letters: DeadLetterWriter | None,
    ) -> None:
        """`letters` is None for a task without dead letters."""
        self._letters: Final = letters
        self._handling: Final = ErrorHandling(settings, task.connector, task.task, random.randrange)
        self._stopping: Final = stopping
        self._refused: BaseException | None = None

    def measures(self) -> Iterator[Measure]:
        """Yield what has gone wrong so far."""
        for name, value in msgspec.structs.asdict(self._handling.counters).items():
            attribute = _ATTRIBUTES.get(name, name.replace("_", "-"))
            yield Measure("task-error-metrics", attribute, value)

    def run(
        self,
        operation: Callable[[], T],
        record: ConsumedRecord | SourceRecord | None,
        stage: Stage,
        class_name: str,
    ) -> T:
        """Return what the operation returns, perhaps after several attempts.

        Raises Skipped for a record that is left out, ConnectException if the task fails.
        """
        began_ms = now_ms()
        retries = None
        while True:
            try:
                return operation()
            except Exception as error:
                failure = Failure(record, stage, class_name, error)
            if retries is None:
                retries = self._handling.begin(began_ms)
            decision = self._handling.failed(
                failure, retries, now_ms(), stopping=self._stopping.is_set()
            )
            if isinstance(decision, TryAgain):
                self._stopping.wait(decision.delay_ms / 1000)
                continue
            self._carry_out(decision, failure.error)
            raise Skipped from failure.error

    def failed(self, record: SourceRecord, stage: Stage, class_name: str, error: Exception) -> None:
        """Do what is to be done about a record that was given up; raises ConnectException."""
        self._carry_out(
            self._handling.reported(Failure(record, stage, class_name, error), now_ms()), error
        )

    def report(self, record: ConsumedRecord, class_name: str, error: Exception) -> Future[None]:
        """Take a record that a sink task cannot take (KIP-610); raises ConnectException.

        The future is done when the dead letter is stored, or at once if there is none.
        """
        decision = self._handling.reported(
            Failure(record, Stage.TASK_PUT, class_name, error), now_ms()
        )
        return self._carry_out(decision, error)

    def await_dead_letters(self, timeout_s: float) -> bool:
        """Wait for dead letters on their way; return whether all are stored.

        Raises ConnectException if one was refused: its record would be lost if its offset were
        committed.
        """
        if self._letters is not None and not self._letters.wait(timeout_s):
            return False
        if self._refused is not None:
            text = "A dead letter was not stored; its record comes again"
            raise ConnectException(text) from self._refused
        return True

    def _carry_out(self, decision: Skip | Fail, error: Exception) -> Future[None]:
        if decision.log is not None:
            logger.error("%s", decision.log, exc_info=error)
        future = self._write(decision.dead_letter)
        if isinstance(decision, Fail):
            if self._letters is not None and not self._letters.wait(_LAST_LETTER_S):
                logger.warning("a dead letter was not written in time")
            raise decision.error from decision.error.__cause__
        return future

    def _write(self, letter: DeadLetter | None) -> Future[None]:
        if letter is not None and self._letters is not None:
            future = self._letters.write(letter)
            future.add_done_callback(self._count)
            return future
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _count(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._refused = error
            self._handling.dead_letter_failed()
