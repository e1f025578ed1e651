"""A compacted topic of what users have said, as a table by owner, on one event loop.

It is read from its beginning when it is first asked for, and followed from then on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import KafkaException

from gateway.alerts.followed_topic import ANSWER_S, follow
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import AppendError, LogUnreachable, ensure_topics
from waylog.kafka.errors import error_text
from waylog.kafka.topics import Topic
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import LogProducer

logger = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")

#: How long a failure to read the topic stands for all who ask, who would each wait for another one.
_FAILURE_STANDS_S: Final = 5.0


class LogTable(Generic[ValueT]):
    """Values by key; the owner of a key is what is in front of its first slash.

    All that waits raises LogUnreachable.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        topic: Topic,
        producer: LogProducer | None,
        decode: Callable[[bytes], ValueT],
    ) -> None:
        """`decode` raises MALFORMED; without a `producer` nothing can be written."""
        self._servers: Final = bootstrap_servers
        self._client_id: Final = f"{client_id}-{topic.name}"
        self._topic: Final = topic
        self._producer: Final = producer
        self._decode: Final = decode
        self._by_owner: dict[str, dict[str, ValueT]] = {}
        self._opening = asyncio.Lock()
        self._reader: BatchReader | None = None
        self._failure = ""
        self._failure_ends = -math.inf
        #: The next offset of each partition, and who waits for one.
        self._next: dict[int, int] = {}
        self._news = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Tell whether it has been read to its end once."""
        return self._reader is not None

    async def of(self, owner: str) -> dict[str, ValueT]:
        """Return the values of an owner by key."""
        await self.open()
        return dict(self._by_owner.get(owner, {}))

    async def owners(self) -> list[str]:
        """Return all who have values."""
        await self.open()
        return list(self._by_owner)

    def known(self, key: str) -> ValueT | None:
        """Return a value as it was read last; None without one, or before anybody has asked."""
        return self._by_owner.get(key.partition("/")[0], {}).get(key)

    async def put(self, key: str, value: bytes | None) -> None:
        """Write a value, None removes it; returns when the table has it."""
        await self.open()
        if self._producer is None:
            raise LogUnreachable("nothing can be written here")
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def delivered(error: AppendError | None, position: Any) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(position)
            else:
                done.set_exception(error)

        try:
            self._producer.send(self._topic.name, value, key.encode(), None, delivered)
            async with asyncio.timeout(ANSWER_S):
                _, partition, offset = await done
                while self._next.get(partition, 0) <= offset:
                    self._news.clear()
                    await self._news.wait()
        except (AppendError, TimeoutError) as error:
            raise LogUnreachable(
                f"topic {self._topic.name}: {error or 'no answer in time'}"
            ) from error

    async def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            await self._reader.close()

    async def open(self) -> None:
        """Read the topic, unless that was done."""
        if self._reader is not None:
            return
        async with self._opening:
            if self._reader is not None:
                return
            now = asyncio.get_running_loop().time
            if now() < self._failure_ends:
                raise LogUnreachable(self._failure)
            try:
                self._reader = await self._opened()
            except LogUnreachable as error:
                self._failure = str(error)
                self._failure_ends = now() + _FAILURE_STANDS_S
                raise

    async def _opened(self) -> BatchReader:
        try:
            await asyncio.to_thread(ensure_topics, self._servers, [self._topic], timeout_s=ANSWER_S)
        except KafkaException as error:
            raise LogUnreachable(f"topic {self._topic.name}: {error_text(error)}") from error
        try:
            return await follow(self._servers, self._client_id, self._topic.name, self._take)
        except BaseException:
            self._by_owner.clear()
            raise

    def _take(self, records: Sequence[Any]) -> None:
        for record in records:
            self._next[record.partition()] = record.offset() + 1
            try:
                key = (record.key() or b"").decode()
                value = record.value()
                decoded = None if value is None else self._decode(value)
            except MALFORMED as error:
                logger.warning("a record of topic %s is left out: %s", self._topic.name, error)
                continue
            owner = key.partition("/")[0]
            if decoded is not None:
                self._by_owner.setdefault(owner, {})[key] = decoded
            elif owner in self._by_owner:
                self._by_owner[owner].pop(key, None)
                if not self._by_owner[owner]:
                    del self._by_owner[owner]
        self._news.set()
