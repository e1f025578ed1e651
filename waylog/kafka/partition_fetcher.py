"""Fetches ranges of partitions, one answer at a time.

Nothing is kept between two calls but connections and who leads, so many callers can share a
fetcher, each with positions of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.connection.security import ConnectionSecurity, configured_security
from waylog.kafka.fetched_records import AbortedTransactions, FetchedRecord, read_batches
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.cluster_requests import Place
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import EARLIEST, Broker, MalformedAnswer

logger = logging.getLogger(__name__)

#: Bytes of one answer: small enough that handling its records does not block others for long.
_ANSWER_BYTES: Final = 128 * 1024
_PARTITION_BYTES: Final = 64 * 1024


class NotFetched(Exception):
    """Nothing could be fetched now; the message says why. It may be tried again."""


class PartitionFetcher:
    """Fetches committed records from the leaders of partitions."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        *,
        answer_timeout_s: float,
        security: ConnectionSecurity | None = None,
    ) -> None:
        self._bootstrap = addresses(bootstrap_servers)
        self._client_id = client_id
        self._timeout_s = answer_timeout_s
        self._security = configured_security() if security is None else security
        self._leaders: dict[Place, Broker] = {}
        self._connections: dict[Broker, BrokerConnection] = {}
        # Several callers at once shall not connect to the same broker several times.
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        """Close all connections."""
        for broker in list(self._connections):
            self._disconnect(broker)

    async def fetch(
        self, remaining: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> tuple[list[FetchedRecord], dict[Place, int]]:
        """Return some records between the offsets `remaining` and `ends` (exclusive).

        Also return what remains then: a partition that is read to its end is not in it. The records
        of a partition are in order. Raises NotFetched, MalformedAnswer.
        """
        leaders = await self._leaders_of(remaining)
        by_leader: dict[Broker, list[Place]] = {}
        for place in remaining:
            by_leader.setdefault(leaders[place], []).append(place)
        answers = await asyncio.gather(
            *(self._ask(broker, remaining, places) for broker, places in by_leader.items()),
            return_exceptions=True,
        )
        records: list[FetchedRecord] = []
        left = dict(remaining)
        trouble = ""
        for broker, answer in zip(by_leader, answers, strict=True):
            if isinstance(answer, NotFetched):
                trouble = str(answer)
                continue
            if isinstance(answer, BaseException):
                raise answer
            for fetched in answer:
                place = (fetched.topic, fetched.partition)
                if place not in remaining:
                    raise MalformedAnswer("records of another partition than was asked for")
                if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    left[place] = await self._behind_deleted(broker, place, left[place], ends)
                elif fetched.error == ErrorCode.CORRUPT_MESSAGE:
                    raise MalformedAnswer(
                        f"{place[0]}-{place[1]} is damaged behind offset {left[place]}; "
                        "the broker's log says where"
                    )
                elif fetched.error:
                    self._leaders.pop(place, None)
                    trouble = f"{place[0]}-{place[1]}: {reason_of(fetched.error)}"
                elif fetched.batches:
                    found, left[place] = await _records(fetched, left[place])
                    records += [each for each in found if each.offset() < ends[place]]
        if trouble and left == remaining:
            raise NotFetched(trouble)
        return records, {place: offset for place, offset in left.items() if offset < ends[place]}

    async def _behind_deleted(
        self, broker: Broker, place: Place, offset: int, ends: Mapping[Place, int]
    ) -> int:
        """Return where to read on if retention has deleted records, else the end."""
        connection = await self._connection(broker)
        body = await self._answer(
            broker, connection, requests.LIST_OFFSETS, requests.list_offsets([place], EARLIEST)
        )
        for topic, partition, error, earliest in requests.read_list_offsets(body):
            if (topic, partition) == place and not error:
                # A log that ends before `offset` has nothing of the range.
                return earliest if earliest > offset else ends[place]
        raise NotFetched(f"{place[0]}-{place[1]}: its first offset is not known")

    async def _ask(
        self, broker: Broker, remaining: Mapping[Place, int], places: list[Place]
    ) -> list[requests.Fetched]:
        connection = await self._connection(broker)
        body = await self._answer(
            broker,
            connection,
            requests.FETCH,
            requests.fetch(
                [(*place, remaining[place]) for place in places],
                # A request that waits would hold up the others of its connection.
                wait_ms=0,
                min_bytes=0,
                max_bytes=_ANSWER_BYTES,
                partition_max_bytes=_PARTITION_BYTES,
            ),
        )
        return requests.read_fetch(body)

    # --- who leads ------------------------------------------------------------------------------

    async def _leaders_of(self, places: Iterable[Place]) -> Mapping[Place, Broker]:
        """Return the leader of each partition; raises NotFetched."""
        missing = [place for place in places if place not in self._leaders]
        if not missing:
            return self._leaders
        metadata = await self._metadata(sorted({topic for topic, _ in missing}))
        for topic in metadata.topics:
            for partition, leader in topic.partitions:
                broker = metadata.brokers.get(leader)
                if broker is not None:
                    self._leaders[topic.name, partition] = broker
        for place in missing:
            if place not in self._leaders:
                raise NotFetched(f"{place[0]}-{place[1]} has no leader")
        return self._leaders

    async def _metadata(self, topics: list[str]) -> requests.Metadata:
        trouble = ""
        for broker in dict.fromkeys([*self._connections, *self._bootstrap]):
            try:
                connection = await self._connection(broker)
                body = await self._answer(
                    broker, connection, requests.METADATA, requests.metadata(topics)
                )
                return requests.read_metadata(body)
            except NotFetched as error:
                trouble = str(error)
        raise NotFetched(trouble)

    # --- connections ----------------------------------------------------------------------------

    async def _connection(self, broker: Broker) -> BrokerConnection:
        async with self._connecting:
            connection = self._connections.get(broker)
            if connection is not None and connection.is_open:
                return connection
            self._disconnect(broker)
            try:
                connection = await BrokerConnection.connect(
                    asyncio.get_running_loop(),
                    broker,
                    self._client_id,
                    self._security,
                    connect_timeout_s=self._timeout_s,
                )
            except (OSError, UnicodeError) as error:
                raise self._unreachable(broker, error) from error
            self._connections[broker] = connection
            return connection

    async def _answer(
        self, broker: Broker, connection: BrokerConnection, api: int, parts: list[bytes]
    ) -> bytes:
        try:
            return await connection.ask(api, parts, self._timeout_s)
        except OSError as error:
            if self._connections.get(broker) is connection:
                self._disconnect(broker)
            raise self._unreachable(broker, error) from error

    def _unreachable(self, broker: Broker, error: Exception) -> NotFetched:
        # Another broker may lead by now.
        self._leaders = {place: each for place, each in self._leaders.items() if each != broker}
        why = str(error) or "no answer in time"
        logger.debug("%s:%d does not answer: %s", *broker, why)
        return NotFetched(f"{broker.host}:{broker.port}: {why}")

    def _disconnect(self, broker: Broker) -> None:
        connection = self._connections.pop(broker, None)
        if connection is not None:
            connection.close()


async def _records(fetched: requests.Fetched, offset: int) -> tuple[list[FetchedRecord], int]:
    """Return the records from an offset on, and the position behind them."""
    read = partial(read_batches, fetched.batches, fetched.topic, fetched.partition)
    aborted = AbortedTransactions(fetched.aborted)
    records, position, is_whole = read(offset, aborted)
    if not is_whole:
        # Another program has written in a codec that may take long to decompress.
        more, position, _ = await asyncio.get_running_loop().run_in_executor(
            None, partial(read, position, aborted, any_codec=True)
        )
        records += more
    return records, position
