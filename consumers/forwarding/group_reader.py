"""The member of the consumer group: reads topic `location` in a thread, for the event loop.

Partitions are paused from their assignment until the event loop knows how far their forwardings
are. The thread asks the event loop what is to be written while no partition can come or go, since
it does not poll meanwhile: so what is written under a generation of the group is of partitions that
this process has in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from consumers.forwarding.progress_writer import NotWritten, ProgressWriter, Record
from waylog.kafka.clients import LogUnreachable, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.group_membership import leave_group
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import LOCATION
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
#: A time in ms, and a partition.
Time = tuple[int, int]

_POLL_S: Final = 0.2
_MESSAGES: Final = 2000
_ANSWER_S: Final = 10.0
#: Seconds for which the thread waits for the event loop.
_LOOP_S: Final = 5.0
#: Seconds for which the log may take its time to store what is written, and the same for partitions
#: that are given back. Nothing is read meanwhile.
_WRITE_S: Final = 5.0
_LAST_WRITE_S: Final = 3.0
#: After a write, reading has this many times what it took, and after one that failed at most so
#: many seconds.
_READ_FOR_A_WRITE: Final = 4.0
_WRITE_LATE_S: Final = 10.0
_RETRY_S: Final = 0.5


class Assigned(NamedTuple):
    """A partition that this process has now, and what the log has of it."""

    partition: int
    position: int  # where the group goes on
    first: int
    end: int
    committed: int | None  # where it was, which may be before `first`; None: nobody knows


class Read(NamedTuple):
    """Messages, and the position behind them, by partition."""

    messages: dict[int, list[Any]]
    ends: dict[int, int]


class ToWrite(NamedTuple):
    """What the log is to have as a whole or not at all."""

    #: What the group may commit, in all partitions.
    offsets: dict[int, int]
    records: list[Record]
    #: Told, on the event loop, whether the log has it; False: it may have it nevertheless.
    done: Callable[[bool], object]


class GroupReader:
    """Its coroutines are called on the event loop, one after the other but for `keep`."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        group: str,
        *,
        session_timeout_s: float,
        to_write: Callable[[Sequence[int]], ToWrite | None],
        on_gone: Callable[[Sequence[int]], object],
    ) -> None:
        """A member that says nothing for `session_timeout_s` loses its partitions.

        `to_write` is called on the event loop with partitions that are given back, of which it is
        the last; it returns None if there is nothing. So is `on_gone`, with partitions that are
        another's now.
        """
        self._loop: Final = asyncio.get_running_loop()
        self._to_write: Final = to_write
        self._on_gone: Final = on_gone
        self._assigned: list[Assigned] = []
        self._is_closing = False
        self._has_left = False
        self._failure: Final = RepeatedFailure()
        self._not_written: Final = RepeatedFailure()
        self._next_write = 0.0
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="forwarding-group")
        self._consumer: Final = Consumer(
            consumer_config(
                *(bootstrap_servers, client_id, group),
                queued_max_messages_kbytes=4 * 1024,
                session_timeout_ms=round(session_timeout_s * 1000),
                # Three may be late before the session ends, as usual.
                heartbeat_interval_ms=round(session_timeout_s * 1000 / 3),
            )
        )
        self._writer: Final = ProgressWriter(bootstrap_servers, client_id, group, self._consumer)
        self._consumer.subscribe(
            [LOCATION], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._forget
        )

    async def read(self, opened: Callable[[list[Any]], list[Any]]) -> tuple[Read, list[Assigned]]:
        """Return what was read, and partitions that are new; `opened` is called in the thread."""
        return await self._in_thread(self._read, opened)

    async def resume(self, partitions: Sequence[int]) -> None:
        """Read partitions whose forwardings are known."""
        await self._in_thread(self._resume, partitions)

    async def keep(self) -> None:
        """Write what is to be written, unless the last time has taken long."""
        await self._in_thread(self._keep)

    async def offsets_of_times(self, wanted: Mapping[int, Set[int]]) -> dict[Time, int | None]:
        """Return the first offsets since times in ms, of which each has some partitions.

        None stands for a partition that has nothing since then. Raises KafkaException.
        """
        return await self._in_thread(self._offsets_of_times, wanted)

    async def first_offset(self, partition: int) -> int:
        """Return the first offset that the log still has; raises KafkaException."""
        low, _ = await self._in_thread(self._extent, partition)
        return low

    async def close(self) -> None:
        """Write what is left, and leave the group."""
        self._is_closing = True
        await self._in_thread(self._leave)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self._loop.run_in_executor(self._thread, work, *arguments)

    # ---- in the thread ----

    def _read(self, opened: Callable[[list[Any]], list[Any]]) -> tuple[Read, list[Assigned]]:
        read = Read({}, {})
        good = []
        for message in next_messages(self._consumer, _MESSAGES, _POLL_S):
            error = message.error()
            if error is None:
                good.append(message)
                self._failure.succeeded()
            elif self._failure.is_new(KafkaException(error)):
                logger.warning("topic %s: %s", LOCATION, error_text(KafkaException(error)))
        for message in good:
            read.ends[message.partition() or 0] = (message.offset() or 0) + 1
        for message in self._opened(good, opened):
            read.messages.setdefault(message.partition() or 0, []).append(message)
        assigned, self._assigned = self._assigned, []
        return read, assigned

    def _opened(self, messages: list[Any], opened: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Return the opened messages; raises LogUnreachable only if the reader closes.

        They do not come again from the consumer.
        """
        while True:
            try:
                return opened(messages)
            except LogUnreachable as error:
                if self._is_closing:
                    raise
                if self._failure.is_new(error):
                    logger.warning("records of %s wait for their keys: %s", LOCATION, error)

    def _resume(self, partitions: Sequence[int]) -> None:
        have = {each.partition for each in self._consumer.assignment()}
        wanted = [TopicPartition(LOCATION, each) for each in partitions if each in have]
        if wanted:
            self._consumer.resume(wanted)

    def _keep(self) -> None:
        if time.monotonic() >= self._next_write:
            self._write((), _WRITE_S)

    def _leave(self) -> None:
        self._write([each.partition for each in self._consumer.assignment()], _LAST_WRITE_S)
        self._has_left = True
        leave_group(self._consumer)
        self._writer.close()

    def _write(self, leaving: Sequence[int], patience_s: float) -> None:
        wanted = self._on_loop(partial(self._to_write, leaving))
        if wanted is None:
            return
        began = time.monotonic()
        is_written = True
        try:
            self._writer.write(wanted.offsets, wanted.records, patience_s)
            self._not_written.succeeded()
        except NotWritten as error:
            is_written = False
            if self._not_written.is_new(error):
                logger.warning("how far forwardings are is not stored: %s", error)
        now = time.monotonic()
        self._next_write = now + min(_READ_FOR_A_WRITE * (now - began), _WRITE_LATE_S)
        # Before the next time that the event loop is asked.
        self._loop.call_soon_threadsafe(wanted.done, is_written)

    def _on_loop(self, function: Callable[[], Result]) -> Result | None:
        """Call a function on the event loop; return its result, None if the loop has no time.

        It is not called later then.
        """
        answer: Future[Result] = Future()

        def run() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except BaseException as error:
                    answer.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        try:
            return answer.result(_LOOP_S)
        except TimeoutError:
            return None if answer.cancel() else answer.result()

    def _extent(self, partition: int) -> tuple[int, int]:
        found = self._consumer.get_watermark_offsets(
            TopicPartition(LOCATION, partition), timeout=_ANSWER_S
        )
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return found

    def _offsets_of_times(self, wanted: Mapping[int, Set[int]]) -> dict[Time, int | None]:
        found: dict[Time, int | None] = {}
        for time_ms, partitions in wanted.items():
            asked = [TopicPartition(LOCATION, each, time_ms) for each in partitions]
            for each in self._consumer.offsets_for_times(asked, timeout=_ANSWER_S):
                if each.error is not None:
                    raise KafkaException(each.error)
                found[time_ms, each.partition] = each.offset if each.offset >= 0 else None
        return found

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = self._begins(consumer, partitions) if partitions else []
        places = [TopicPartition(LOCATION, each.partition, each.position) for each in found]
        consumer.incremental_assign(places)
        if places:
            consumer.pause(places)
        self._assigned += found

    def _begins(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[Assigned]:
        """Return where partitions begin: where the group was, or at the beginning.

        An error cannot be raised here: the group would go on without us.
        """
        while True:
            try:
                found = []
                for each in consumer.committed(partitions, timeout=_ANSWER_S):
                    if each.error is not None:
                        raise KafkaException(each.error)
                    first, end = self._extent(each.partition)
                    # A group that is beyond the end has read another topic of the name.
                    position = each.offset if first <= each.offset <= end else first
                    committed = each.offset if 0 <= each.offset <= end else None
                    found.append(Assigned(each.partition, position, first, end, committed))
                return found
            except KafkaException as error:
                if self._is_closing:
                    return []
                if self._failure.is_new(error):
                    logger.warning("topic %s: %s", LOCATION, error_text(error))
                time.sleep(_RETRY_S)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._has_left:
            self._write([each.partition for each in partitions], _LAST_WRITE_S)
        self._forget(consumer, partitions)

    def _forget(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        self._assigned = [each for each in self._assigned if each.partition not in numbers]
        # Before the next time that the event loop is asked what is to be written.
        self._loop.call_soon_threadsafe(self._on_gone, numbers)
        consumer.incremental_unassign(partitions)
