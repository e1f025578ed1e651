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
from consumers.connect.http.lanes import order_key
from consumers.connect.http.properties import Settings
from consumers.connect.http.sender import Sender
from consumers.connect.http.set_aside import SetAside
from consumers.connect.plugins.sink_task import SinkTask, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: `put` begins no request after so many seconds, so that the task stays in its group.
_PUT_S: Final = 10.0


class HttpSinkTask(SinkTask):
    """Sends records as they are put; `put` returns once all are answered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Of a batch that comes again, what is done already.
        self._done: set[Place] = set()
        self._failures = 0
        #: Whether the server has taken a record of the batch.
        self._takes_others = False
        self._not_before = 0.0

    def start(self, properties: Mapping[str, str]) -> None:
        """Make the event loop; raises ConfigException."""
        self._settings = Settings.of(properties)
        settings = self._settings
        self._aside = SetAside(settings.backoff)
        self._loop = uvloop.new_event_loop()
        self._sender = Sender(self._settings)
        self._run(self._sender.open())

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Send records, and report those that the server refuses.

        What the server takes later while it takes others is set aside. Raises RetriableException
        for what it may take later, ConnectException for what waiting does not cure.
        """
        if not records and not self._aside:
            return
        pause_s = self._not_before - self._clock()
        if pause_s > 0:
            # The worker may come sooner than it was asked to.
            self.context.timeout(round(pause_s * 1000) + 1)
            raise RetriableException(f"{self._sender.server} is asked again later")
        divided = self._aside.divide([each for each in records if each.place not in self._done])
        self._done.update(each.place for each in divided.held)
        rest = divided.free
        limit = self._settings.retries_max
        is_last = 0 <= limit <= self._failures
        result = self._run(
            deliver(
                *([*self._aside.due(self._clock()), *rest], self._settings, self._sender),
                until=self._clock() + _PUT_S,
                is_last=is_last,
                clock=self._clock,
            )
        )
        given_up = result.postponed if is_last else []
        done = [*result.done, *(record for record, _ in given_up)]
        places = {each.place for each in done}
        self._done.update(places)
        self._settle(result, places)
        self.report([*result.refused, *given_up])
        if result.set_up is not None:
            raise ConnectException(result.set_up.reason)
        left = [each for each in rest if each.place not in places]
        if left and not divided.blocked and self._may_set_aside(left, result):
            logger.warning("%d records are set aside: %s", len(left), result.postponed[0].error)
            self._aside.add(left, self._clock())
            left = []
        if left or (result.later is not None and not result.later.is_answered):
            self._postpone(result, has_progressed=bool(done))
        due_s = self._aside_due_s()
        if due_s is not None:
            self.context.timeout(round(due_s * 1000) + 1)
        if divided.blocked:
            raise RetriableException(
                f"{self._sender.server} does not take {len(self._aside)} records that others wait "
                "for; no more are read"
            )
        self._done.clear()
        self._failures = 0
        self._takes_others = False

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return offsets up to the first records that are set aside."""
        first = self._aside.first_offsets()
        return {
            partition: min(offset, first.get((partition.topic, partition.partition), offset))
            for partition, offset in offsets.items()
        }

    def erase(self, erasures: Mapping[str, int]) -> None:
        """Have what is set aside come again, without what is erased."""
        first = self._aside.first_offsets()
        for partition, offset in first.items():
            self.context.offset(TopicPartition(*partition), offset)
        self._forget([TopicPartition(*each) for each in first])

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

    def _settle(self, result: Delivered, done: set[Place]) -> None:
        self._takes_others |= len(result.done) > len(result.refused)
        retry_s = (result.later.retry_after_s if result.later is not None else None) or 0.0
        postponed = {record.place for record, _ in result.postponed}
        self._aside.settle(done, postponed, retry_s, self._clock())

    def _may_set_aside(self, left: Sequence[SinkRecord], result: Delivered) -> bool:
        """Tell whether a server takes others than these, so that these need not hold them back."""
        if self._settings.retries_max >= 0 or not self._failures or not self._takes_others:
            return False
        if result.is_interrupted or result.is_unfinished or not self._aside.has_room(left):
            return False
        keys = {order_key(record) for record, _ in result.postponed}
        return all(order_key(each) in keys for each in left)

    def _aside_due_s(self) -> float | None:
        due = self._aside.next_due()
        return None if due is None else max(due - self._clock(), 0.0)

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
        pause_s = max(settings.backoff.pause_s(self._failures), later.retry_after_s or 0.0)
        self._not_before = self._clock() + pause_s
        self.context.timeout(round(pause_s * 1000) + 1)
        raise RetriableException(later.reason)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        self._done = {each for each in self._done if each[:2] not in gone}
        self._aside.forget(gone)
