"""What becomes of an error in a task: another attempt, a record left out, or the task's end.

It is what Kafka Connect's RetryWithToleranceOperator decides, without waiting, logging or writing:
the answer says what is to be done. Only RetriableException is tried again. With `errors.tolerance`
none the task also fails by such an error whose time has run out; Kafka Connect leaves that record
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.errors.counters import ErrorCounters
from consumers.connect.errors.dead_letters import DeadLetter, dead_letter
from consumers.connect.errors.failures import Failure
from consumers.connect.errors.log_lines import log_line
from consumers.connect.errors.retries import Retries
from consumers.connect.errors.settings import ErrorSettings


class TryAgain(NamedTuple):
    """The operation is to be tried again after a pause."""

    delay_ms: int


class Skip(NamedTuple):
    """The record is left out, once its dead letter is acknowledged."""

    log: str | None  # a line to be logged as an error
    dead_letter: DeadLetter | None


class Fail(NamedTuple):
    """The task fails; what is to be logged and written comes first."""

    log: str | None
    dead_letter: DeadLetter | None
    error: ConnectException


Decision = TryAgain | Skip | Fail


class ErrorHandling:
    """Decides for one task."""

    def __init__(
        self,
        settings: ErrorSettings,
        connector: str,
        task: int,
        draw: Callable[[int], int],
    ) -> None:
        """`draw(n)` returns a random number from 0 to n-1."""
        self.settings: Final = settings
        self.counters: Final = ErrorCounters()
        self._connector: Final = connector
        self._task: Final = task
        self._draw: Final = draw

    def begin(self, now_ms: int) -> Retries:
        """Return the attempts at an operation that begins now.

        It may be made when the first attempt has failed, with the time at which it began.
        """
        return Retries(
            now_ms, self.settings.retry_timeout_ms, self.settings.retry_delay_max_ms, self._draw
        )

    def failed(
        self, failure: Failure, retries: Retries, now_ms: int, *, stopping: bool = False
    ) -> Decision:
        """Return what is to be done about a failed attempt; a task that stops tries no more."""
        self.counters.total_record_failures += 1
        if isinstance(failure.error, RetriableException) and not stopping:
            delay_ms = retries.delay_ms(now_ms)
            if delay_ms is not None:
                self.counters.total_retries += 1
                return TryAgain(delay_ms)
        tolerable = failure.stage.tolerates_any_error or isinstance(
            failure.error, RetriableException
        )
        return self._give_up(failure, now_ms, tolerable=tolerable)

    def reported(self, failure: Failure, now_ms: int) -> Skip | Fail:
        """Return what is to be done about a record that a sink connector cannot take (KIP-610)."""
        self.counters.total_record_failures += 1
        return self._give_up(failure, now_ms, tolerable=True)

    def dead_letter_failed(self) -> None:
        """Count a dead letter that could not be written."""
        self.counters.deadletterqueue_produce_failures += 1

    def _give_up(self, failure: Failure, now_ms: int, *, tolerable: bool) -> Skip | Fail:
        settings = self.settings
        self.counters.total_record_errors += 1
        self.counters.last_error_timestamp = now_ms
        line = None
        if settings.logs:
            line = log_line(self._connector, self._task, failure, with_record=settings.logs_records)
            self.counters.total_errors_logged += 1
        letter = None
        if settings.dead_letter_topic:
            self.counters.deadletterqueue_produce_requests += 1
            letter = dead_letter(
                settings.dead_letter_topic,
                self._connector,
                self._task,
                failure,
                with_context=settings.dead_letters_have_context,
            )
            if letter is None:
                self.counters.deadletterqueue_produce_failures += 1
        if tolerable and settings.tolerates_all:
            self.counters.total_records_skipped += 1
            return Skip(line, letter)
        reason = "Tolerance exceeded" if tolerable else "Unhandled exception"
        error = ConnectException(f"{reason} in error handler")
        error.__cause__ = failure.error
        return Fail(line, letter, error)
