"""A reader of whole topics on the event loop, without an object of a library for each record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from waylog.config import ConfigError
from waylog.kafka.clients import FETCH_MIN_BYTES, FETCH_WAIT_MS, LogUnreachable
from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.connection.reach_trouble import ReachTrouble
from waylog.kafka.connection.security import ConnectionSecurity, configured_security
from waylog.kafka.errors import forbidden_text
from waylog.kafka.fetched_records import AbortedTransactions, FetchedRecord, read_batches
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.error_codes import ErrorCode, reason_of
from waylog.kafka.protocol.requests import EARLIEST, LATEST, Broker, MalformedAnswer
from waylog.process.background import spawn
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

#: Bytes of one answer: small enough that handling its records does not block others for long.
_ANSWER_BYTES: Final = 512 * 1024
_PARTITION_BYTES: Final = 128 * 1024
#: Wait after an answer without records. The broker answers as soon as there is a record, so no
#: further request is needed meanwhile.
_IDLE_WAIT_MS: Final = 500
#: Pause after some records: more are on their way, and each answer takes time on the event loop.
_GATHER_S: Final = 0.005
#: Bytes of an answer above which the reader is behind and asks again without a pause.
_BEHIND_BYTES: Final = 32 * 1024
_ANSWER_TIMEOUT_S: Final = 10.0
_BACKOFF_S: Final = 0.05
_BACKOFF_MAX_S: Final = 1.0
_REFRESH_S: Final = 30.0

#: Decrypts sealed records, and leaves out those that cannot be read any more. May block; raises
#: LogUnreachable if it should be called again, ConfigError.
Opened = Callable[[Sequence[Any]], list[Any]]


class _Elsewhere(Exception):
    """Another broker leads a partition now, or none: the metadata must be asked again."""


class BatchReader:
    """Reads all partitions of a topic in order, outside of any group, for views.

    `on_records` gets batches on the event loop; one at which it raises comes again, record by
    record. `on_caught_up` is called once, when all records that the log had at the start have been
    handed over. Only committed records are read.

    `tail`: None reads from the beginning, 0 only new records, n also the newest n records of each
    partition. `starts` gives the start offsets instead; a partition that it does not name is read
    from its beginning. With `ends` only the partitions that it names are read, up to those offsets;
    then the reader has caught up, and stops. `leisurely`: after each answer the reader pauses for
    as long as its records took, to leave the event loop to others.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        topic: str,
        loop: asyncio.AbstractEventLoop,
        *,
        on_records: Callable[[list[Any]], None],
        on_caught_up: Callable[[], None] | None = None,
        tail: int | None = None,
        starts: Mapping[int, int] | None = None,
        ends: Mapping[int, int] | None = None,
        leisurely: bool = False,
        fetch_min_bytes: int = FETCH_MIN_BYTES,
        fetch_wait_max_ms: int = FETCH_WAIT_MS,
        opened: Opened | None = None,
        security: ConnectionSecurity | None = None,
    ) -> None:
        self._security = configured_security() if security is None else security
        self._opened = opened
        # One thread, which keeps the order and cannot take those of others while it waits for keys.
        self._opening = (
            None
            if opened is None
            else ThreadPoolExecutor(1, thread_name_prefix=f"{client_id}-open")
        )
        self._outside = ReachTrouble(bootstrap_servers, self._security, quiet=True)
        # Why partitions cannot be read although some broker answers.
        self._leaderless: str | None = None
        self._bootstrap = addresses(bootstrap_servers)
        self._client_id = client_id
        self._topic = topic
        self._loop = loop
        self._on_records = on_records
        self._on_caught_up = on_caught_up
        self._tail = tail
        self._starts = starts
        self._until = ends
        self._leisurely = leisurely
        self._min_bytes = fetch_min_bytes
        self._wait_ms = fetch_wait_max_ms
        # The next offset of each partition, and the end offsets at the start not reached yet.
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] | None = None
        self._brokers: dict[int, Broker] = {}
        self._task: asyncio.Task[None] | None = None
        self._said = LogThrottle()
        self._malformed_said = LogThrottle()
        self._left_out_said = LogThrottle()
        # Partition and offset of the records that could not be taken last.
        self._untaken: tuple[int, int] | None = None
        #: Time of the log's last answer, on the clock of time.monotonic().
        self.heard_at = time.monotonic()

    @property
    def trouble(self) -> str | None:
        """The reason why the topic cannot be read, if one is known; else None."""
        return self._outside.kept_out or self._leaderless or self._outside.reason

    def start(self) -> None:
        """Start reading."""
        self._task = spawn(self._run(), f"reading {self._topic}", loop=self._loop, endless=True)

    async def close(self) -> None:
        """Stop reading; no batch is handed over afterwards."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._opening is not None:
            self._opening.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        backoff_s = _BACKOFF_S
        while True:
            try:
                leaders = await self._leaders()
                backoff_s = _BACKOFF_S
                await self._read(leaders)
            except ConfigError:
                raise  # the master key is wrong: trying again does not help
            except (OSError, UnicodeError, _Elsewhere) as error:
                logger.debug("%s cannot be read: %s", self._topic, error)
            except MalformedAnswer as error:
                # Whatever it is, it is there at the next attempt too.
                if self._malformed_said.count(self._loop.time()) is not None:
                    logger.error("%s cannot be read on: %s", self._topic, error)
                backoff_s = _BACKOFF_MAX_S
            except Exception:
                # A view must not stop for good.
                logger.exception("records of %s could not be taken", self._topic)
                backoff_s = _BACKOFF_MAX_S
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    # --- who leads ------------------------------------------------------------------------------

    async def _leaders(self) -> dict[int, list[int]]:
        """Return partitions by the broker that leads them; raises _Elsewhere and OSError."""
        failures: dict[Broker, Exception] = {}
        for broker in [*self._brokers.values(), *self._bootstrap]:
            try:
                connection = await self._connect(broker)
                try:
                    return await self._ask_for_leaders(connection)
                finally:
                    connection.close()
            except (OSError, UnicodeError) as error:
                logger.debug("%s:%d cannot be asked: %s", *broker, error)
                failures[broker] = error
        self._leaderless = None
        await self._outside.failed(failures)
        raise _Elsewhere("no broker can be reached")

    async def _ask_for_leaders(self, connection: BrokerConnection) -> dict[int, list[int]]:
        body = await connection.ask(
            requests.METADATA, requests.metadata([self._topic]), _ANSWER_TIMEOUT_S
        )
        metadata = requests.read_metadata(body)
        self._brokers = metadata.brokers
        by_leader: dict[int, list[int]] = {}
        for topic in metadata.topics:
            for partition, leader in topic.partitions:
                by_leader.setdefault(leader, []).append(partition)
            if topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._leaderless = forbidden_text(f"topic {topic.name}", "READ")
                raise _Elsewhere(self._leaderless)
        unknown = sorted(
            partition
            for leader, partitions in by_leader.items()
            if leader not in self._brokers
            for partition in partitions
        )
        if unknown or not by_leader:
            names = self._named(unknown) if unknown else f"topic {self._topic}"
            self._leaderless = f"{names} has no leader"
            raise _Elsewhere(self._leaderless)
        return by_leader

    def _named(self, partitions: list[int]) -> str:
        more = f" (and {len(partitions) - 1} more partitions)" if len(partitions) > 1 else ""
        return f"{self._topic}-{partitions[0]}{more}"

    async def _connect_to_leader(self, node: int, partitions: list[int]) -> BrokerConnection:
        broker = self._brokers[node]
        try:
            return await self._connect(broker)
        except OSError as error:
            # Another broker has answered, so it is not that none can be reached.
            reason = (
                "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)
            )
            self._leaderless = (
                f"{self._named(partitions)} has no leader that answers: broker {node} at "
                f"{broker.host}:{broker.port}: {reason.lower() or 'no answer in time'}"
            )
            await self._outside.failed({broker: error})
            raise

    async def _connect(self, broker: Broker) -> BrokerConnection:
        return await BrokerConnection.connect(self._loop, broker, self._client_id, self._security)

    # --- reading --------------------------------------------------------------------------------

    async def _read(self, leaders: dict[int, list[int]]) -> None:
        """Read until others lead, or until a leader fails; raises the error of that one."""
        connections: dict[int, BrokerConnection] = {}
        tasks: list[asyncio.Task[None]] = []
        try:
            for node, partitions in leaders.items():
                connections[node] = await self._connect_to_leader(node, partitions)
            await self._begin(leaders, connections)
            tasks = [
                self._loop.create_task(self._fetch(connections[node], partitions))
                for node, partitions in leaders.items()
            ]
            while True:
                done, _ = await asyncio.wait(
                    tasks, timeout=_REFRESH_S, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                # Partitions may be added to a topic, or be led by others without an error here.
                brokers = self._brokers
                asked = await self._ask_for_leaders(next(iter(connections.values())))
                if asked != leaders or self._brokers != brokers:
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in connections.values():
                connection.close()

    async def _begin(
        self, leaders: dict[int, list[int]], connections: dict[int, BrokerConnection]
    ) -> None:
        """Find the start offsets of partitions that have none yet."""
        first_time = self._ends is None
        ends: dict[int, int] = {}
        for node, partitions in leaders.items():
            new = [
                each
                for each in partitions
                if each not in self._positions and (self._until is None or each in self._until)
            ]
            if not new:
                continue
            starts = await self._offsets(connections[node], new, EARLIEST)
            latest = await self._offsets(connections[node], new, LATEST)
            for partition in new:
                start, end = starts[partition], latest[partition]
                if self._until is not None:
                    end = min(end, self._until[partition])
                if self._starts is not None:
                    start = min(max(start, self._starts.get(partition, start)), end)
                elif self._tail is not None and first_time:
                    start = max(start, end - self._tail)
                self._positions[partition] = start
                if start < end:
                    ends[partition] = end
        if first_time:
            self._ends = ends
            self._look_whether_caught_up()

    async def _offsets(
        self, connection: BrokerConnection, partitions: list[int], which: int
    ) -> dict[int, int]:
        body = await connection.ask(
            requests.LIST_OFFSETS,
            requests.list_offsets([(self._topic, each) for each in partitions], which),
            _ANSWER_TIMEOUT_S,
        )
        offsets: dict[int, int] = {}
        for _, partition, error, offset in requests.read_list_offsets(body):
            if error:
                raise _Elsewhere(f"partition {partition}: {reason_of(error)}")
            offsets[partition] = offset
        if offsets.keys() != set(partitions):
            raise MalformedAnswer("offsets of other partitions than were asked for")
        return offsets

    async def _fetch(self, connection: BrokerConnection, partitions: list[int]) -> None:
        # The order rotates, so that no partition is always the last to get room in an answer.
        order = list(partitions)
        idle = False
        while True:
            if self._until is not None:
                order = [each for each in order if self._ends and each in self._ends]
                if not order:
                    await asyncio.sleep(_REFRESH_S)
                    continue
            body = await connection.ask(
                requests.FETCH,
                requests.fetch(
                    [(self._topic, each, self._positions[each]) for each in order],
                    wait_ms=_IDLE_WAIT_MS if idle else self._wait_ms,
                    min_bytes=1 if idle else self._min_bytes,
                    max_bytes=_ANSWER_BYTES,
                    partition_max_bytes=_PARTITION_BYTES,
                ),
                _ANSWER_TIMEOUT_S,
            )
            self.heard_at = time.monotonic()
            self._outside.succeeded()
            self._leaderless = None
            order.append(order.pop(0))
            taken = 0
            for _, partition, error, aborted, batches in requests.read_fetch(body):
                if error == ErrorCode.OFFSET_OUT_OF_RANGE:
                    # Retention has deleted records before they were read.
                    starts = await self._offsets(connection, [partition], EARLIEST)
                    self._positions[partition] = starts[partition]
                elif error == ErrorCode.CORRUPT_MESSAGE:
                    raise MalformedAnswer(
                        f"partition {partition} is damaged behind offset "
                        f"{self._positions[partition]}; the broker's log says where"
                    )
                elif error:
                    raise _Elsewhere(f"partition {partition}: {reason_of(error)}")
                elif batches and partition in self._positions:
                    taken += len(batches)
                    await self._take(partition, batches, AbortedTransactions(aborted))
            idle = not taken
            if taken and len(body) < _BEHIND_BYTES:
                await asyncio.sleep(_GATHER_S)

    async def _take(self, partition: int, batches: bytes, aborted: AbortedTransactions) -> None:
        began = self._loop.time()
        read = partial(read_batches, batches, self._topic, partition)
        records, position, is_whole = read(self._positions[partition], aborted)
        await self._hand_over(partition, records, position)
        if not is_whole:
            # Another program has written in a codec that may take long to decompress.
            records, position, _ = await self._loop.run_in_executor(
                None, partial(read, position, aborted, any_codec=True)
            )
            await self._hand_over(partition, records, position)
        elif len(batches) >= _BEHIND_BYTES:
            await asyncio.sleep(self._loop.time() - began if self._leisurely else 0)

    async def _hand_over(self, partition: int, records: list[FetchedRecord], position: int) -> None:
        if records and self._opened is not None:
            records = await self._open(records, self._opened)
        if records:
            self._tell(partition, records)
        self._positions[partition] = position
        if self._ends:
            self._look_whether_caught_up()

    def _tell(self, partition: int, records: list[FetchedRecord]) -> None:
        """Hand records over; if some cannot be taken, all come once more, one by one.

        Those that cannot be taken then either are left out.
        """
        position = (partition, self._positions[partition])
        if self._untaken != position:
            try:
                self._on_records(records)
            except Exception:
                self._untaken = position
                raise
            return
        for record in records:
            try:
                self._on_records([record])
            except Exception as error:
                unsaid = self._left_out_said.count(self._loop.time())
                if unsaid is not None:
                    logger.error(
                        "%s-%d: the record at offset %d cannot be taken and is left out%s",
                        *(self._topic, partition, record.offset()),
                        since_last_line(unsaid),
                        exc_info=error,
                    )

    async def _open(self, records: list[FetchedRecord], opened: Opened) -> list[FetchedRecord]:
        while True:
            try:
                return await self._loop.run_in_executor(self._opening, opened, records)
            except LogUnreachable as error:
                if self._said.count(self._loop.time()) is not None:
                    logger.warning("records of %s wait for their keys: %s", self._topic, error)

    def _look_whether_caught_up(self) -> None:
        assert self._ends is not None
        for partition, end in list(self._ends.items()):
            if self._positions[partition] >= end:
                del self._ends[partition]
        if not self._ends and self._on_caught_up is not None:
            caught_up, self._on_caught_up = self._on_caught_up, None
            caught_up()
