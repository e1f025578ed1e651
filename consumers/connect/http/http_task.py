"""The task of HttpSink: an event loop of its own, what is sent again and when, what is reported."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import uvloop

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import Place, SinkRecord
from consumers.connect.http.delivery import Delivered, deliver
from consumers.connect.http.properties import Settings
from consumers.connect.http.sender import Sender
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: `put` begins no request after so many seconds, so that the task stays in its group.
_PUT_S: Final = 10.0
_DOUBLINGS_MAX: Final = 30


class HttpSinkTask(SinkTask):
    """Sends records as they are put; `put` returns once all are answered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Of a batch that comes again, what is done already.
        self._done: set[Place] = set()
        self._failures = 0
        self._not_before = 0.0

    def start(self, properties: Mapping[str, str]) -> None:
        """Make the event loop; raises ConfigException."""
        self._settings = Settings.of(properties)
        self._loop = uvloop.new_event_loop()
        self._sender = Sender(self._settings)
        self._run(self._sender.open())

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Send records, and report those that the server refuses.

        Raises RetriableException for those that it may take later, ConnectException for what
        waiting does not cure.
        """
        if not records:
            return
        pause_s = self._not_before - self._clock()
        if pause_s > 0:
            # The worker may come sooner than it was asked to.
            self.context.timeout(round(pause_s * 1000) + 1)
            raise RetriableException(f"{self._sender.server} is asked again later")
        rest = [each for each in records if each.place not in self._done]
        limit = self._settings.retries_max
        is_last = 0 <= limit <= self._failures
        result = self._run(
            deliver(
                *(rest, self._settings, self._sender),
                until=self._clock() + _PUT_S,
                is_last=is_last,
                clock=self._clock,
            )
        )
        given_up = result.postponed if is_last else []
        done = [*result.done, *(record for record, _ in given_up)]
        self._done.update(each.place for each in done)
        self.report([*result.refused, *given_up])
        if result.set_up is not None:
            raise ConnectException(result.set_up.reason)
        if len(done) < len(rest):
            self._postpone(result, has_progressed=bool(done))
        self._done.clear()
        self._failures = 0

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was done: offsets may have been set back."""
        self._forget(partitions)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what was done: others send it now."""
        self._forget(partitions)

    def stop(self) -> None:
        """Close connections and the event loop."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(self._sender.close())
            loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return self._loop.run_until_complete(coroutine)

    def _postpone(self, result: Delivered, *, has_progressed: bool) -> None:
        """Raise RetriableException, and have the records come again after a pause."""
        later = result.later
        if later is None:
            # Slow, but nothing has failed.
            self.context.timeout(0)
            raise RetriableException(f"{self._sender.server}: not all records are sent yet")
        settings = self._settings
        starts_anew = has_progressed and not result.postponed
        self._failures = 1 if starts_anew else self._failures + 1
        limit = settings.retries_max
        if 0 <= limit < self._failures and not later.is_answered:
            raise ConnectException(f"{later.reason}; given up after {limit} retries")
        doublings = min(self._failures - 1, _DOUBLINGS_MAX)
        pause_s = min(settings.backoff_ms << doublings, settings.backoff_max_ms) / 1000
        pause_s = max(pause_s, later.retry_after_s or 0.0)
        self._not_before = self._clock() + pause_s
        self.context.timeout(round(pause_s * 1000) + 1)
        raise RetriableException(later.reason)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        gone = {tuple(each) for each in partitions}
        self._done = {each for each in self._done if each[:2] not in gone}
