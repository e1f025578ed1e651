"""The member of the consumer group: reads topic `location` in a thread, for the event loop.

Partitions are paused from their assignment until the event loop knows how far their forwardings
are. Offsets are committed as the event loop says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waylog.kafka.clients import LogUnreachable, consumer_config
from waylog.kafka.errors import error_text
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
#: Seconds for which a revocation waits for the event loop.
_REVOKE_S: Final = 5.0
_RETRY_S: Final = 0.5


class Assigned(NamedTuple):
    """A partition that this process has now, and what the log has of it."""

    partition: int
    position: int  # where the group goes on
    first: int
    end: int


class Read(NamedTuple):
    """Messages, and the position behind them, by partition."""

    messages: dict[int, list[Any]]
    ends: dict[int, int]


class GroupReader:
    """Its coroutines are called on the event loop, one after the other but for `commit`."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        group: str,
        *,
        session_timeout_s: float,
        on_revoked: Callable[[Sequence[int]], Awaitable[dict[int, int]]],
        on_lost: Callable[[Sequence[int]], object],
    ) -> None:
        """A member that says nothing for `session_timeout_s` loses its partitions.

        `on_revoked` is awaited on the event loop, for some seconds, and returns the offsets to
        commit.
        """
        self._loop: Final = asyncio.get_running_loop()
        self._on_revoked: Final = on_revoked
        self._on_lost: Final = on_lost
        self._assigned: list[Assigned] = []
        self._is_closing = False
        self._failure: Final = RepeatedFailure()
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
        self._consumer.subscribe(
            [LOCATION], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )

    async def read(self, opened: Callable[[list[Any]], list[Any]]) -> tuple[Read, list[Assigned]]:
        """Return what was read, and partitions that are new; `opened` is called in the thread."""
        return await self._in_thread(self._read, opened)

    async def resume(self, partitions: Sequence[int]) -> None:
        """Read partitions whose forwardings are known."""
        await self._in_thread(self._resume, partitions)

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Commit offsets; return whether the group has accepted them."""
        return await self._in_thread(self._commit, offsets)

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
        """Leave the group."""
        self._is_closing = True
        await self._in_thread(self._consumer.close)
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

    def _commit(self, offsets: Mapping[int, int]) -> bool:
        # Others may have got a partition since the offsets were computed.
        have = {each.partition for each in self._consumer.assignment()}
        wanted = [
            TopicPartition(LOCATION, each, offset)
            for each, offset in offsets.items()
            if each in have
        ]
        if not wanted:
            return False
        try:
            answered = self._consumer.commit(offsets=wanted, asynchronous=False) or []
        except KafkaException as error:
            if self._failure.is_new(error):
                logger.warning("offsets are not committed: %s", error_text(error))
            return False
        return all(each.error is None for each in answered)

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
                    found.append(Assigned(each.partition, position, first, end))
                return found
            except KafkaException as error:
                if self._is_closing:
                    return []
                if self._failure.is_new(error):
                    logger.warning("topic %s: %s", LOCATION, error_text(error))
                time.sleep(_RETRY_S)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        self._assigned = [each for each in self._assigned if each.partition not in numbers]
        done = asyncio.run_coroutine_threadsafe(self._revoked(numbers), self._loop)
        try:
            self._commit(done.result(_REVOKE_S))
        except TimeoutError:
            logger.warning("partitions are given back without a commit: their records come again")
        consumer.incremental_unassign(partitions)

    async def _revoked(self, partitions: Sequence[int]) -> dict[int, int]:
        return await self._on_revoked(partitions)

    def _lose(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        self._assigned = [each for each in self._assigned if each.partition not in numbers]
        self._loop.call_soon_threadsafe(self._on_lost, numbers)
        self._consumer.incremental_unassign(partitions)
