"""The work of `waylog forwarding run`: puts ledger, schedule, readers and deliveries together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException

from consumers.connect.data.exceptions import kafka_name_of
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.delivery import Refusal
from consumers.forwarding.delivery import Delivery, Result
from consumers.forwarding.group_reader import Assigned, GroupReader, Read
from consumers.forwarding.http_delivery import HttpDelivery
from consumers.forwarding.ledger import Arrived, Ledger, ToStore
from consumers.forwarding.progress_log import read_progress
from consumers.forwarding.route import Entry, Route
from consumers.forwarding.schedule import Failure, Pauses, Schedule
from waylog.forwarding.definition import (
    Forwarding,
    decode_forwarding,
    encode,
    parse_key,
    record_key,
)
from waylog.forwarding.keys import sealed_with_known_key
from waylog.history.erasures import ErasureLog
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import AppendError
from waylog.kafka.dead_letters import CONNECT_PREFIX
from waylog.kafka.errors import error_text
from waylog.kafka.partition_fetcher import NotFetched, PartitionFetcher
from waylog.kafka.protocol.requests import MalformedAnswer
from waylog.kafka.topics import (
    FORWARDING,
    FORWARDING_DEAD_LETTER,
    FORWARDING_PROGRESS,
    LOCATION,
)
from waylog.malformed import MALFORMED
from waylog.network.outbound.reachable_networks import ReachableNetworks
from waylog.process.background import PeriodicTask, TaskSet, spawn
from waylog.process.log_throttle import LogThrottle
from waylog.sealing.sealing import repeated_opener, sealed_if_configured
from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

#: The newest place that records could have; a fetch returns as many as one answer has.
_FAR: Final = 1_000_000
_FETCH_S: Final = 10.0
#: Records of one turn of a forwarding.
_TURN_RECORDS: Final = 100
_TICK_S: Final = 1.0
_LOOK_S: Final = 0.2
_PAUSE_S: Final = 1.0
#: First offsets that are looked up between two reads of the group.
_PLACED_AT_ONCE: Final = 20
_REPORT_S: Final = 60.0
#: Seconds for which a stop waits for requests that are under way.
_FINISH_S: Final = 3.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `waylog forwarding run`."""

    bootstrap_servers: str
    group: str
    client_id: str
    networks: ReachableNetworks
    pauses: Pauses = Pauses()
    timeout_s: float = 10.0


class _Device(msgspec.Struct):
    device: str


_device_of: Final = msgspec.json.Decoder(_Device).decode


class ForwardingWorker:
    """Used on one event loop."""

    def __init__(self, settings: WorkerSettings, keys: KeyRing) -> None:
        self._settings: Final = settings
        self._keys: Final = keys
        self._ledger: Final = Ledger()
        self._schedule: Final = Schedule(settings.pauses)
        self._sending: Final = TaskSet("forwarding")
        self._deliveries: Final[dict[str, Delivery]] = {}
        self._tasks: Final[dict[int, asyncio.Task[None]]] = {}
        self._is_member = False
        self._counts: Final = {"forwarded": 0, "refused": 0, "failed": 0}
        self._said: Final = LogThrottle()
        #: Set when something may be sent, or read for again.
        self._work: Final = asyncio.Event()

    @property
    def fatal(self) -> str | None:
        """Why nothing can be written until a new start."""
        return self._producer.fatal

    async def start(self, stack: AsyncExitStack) -> None:
        """Begin; all that is started is closed by the stack. Raises LogUnreachable, ConfigError."""
        settings, loop = self._settings, asyncio.get_running_loop()
        servers, client_id = settings.bootstrap_servers, settings.client_id
        self._opened = repeated_opener(servers)
        self._producer = BatchProducer(servers, client_id, loop)
        self._letters = sealed_if_configured(self._producer, servers, loop)
        stack.push_async_callback(self._letters.close)
        erasures = ErasureLog(servers)
        stack.callback(erasures.close)
        self._erasures = erasures.erasures
        await asyncio.to_thread(erasures.wait)
        self._fetcher = PartitionFetcher(servers, f"{client_id}-again", answer_timeout_s=_FETCH_S)
        stack.push_async_callback(self._fetcher.close)
        self._http = HttpDelivery(settings.networks, settings.timeout_s)
        stack.push_async_callback(self._http.close)
        stack.push_async_callback(self._sending.close)
        await self._follow_forwardings(stack)
        self._group = GroupReader(
            *(servers, client_id, settings.group),
            on_revoked=self._revoked,
            on_lost=self._lost,
        )
        stack.push_async_callback(self._leave)
        for work in (
            spawn(self._read(), "reading for forwardings", endless=True),
            spawn(self._send(), "sending forwardings", endless=True),
            PeriodicTask("keeping the progress of forwardings").spawn(_TICK_S, self._keep),
            PeriodicTask("counting forwardings").spawn(_REPORT_S, self._report),
        ):
            stack.push_async_callback(_cancel, work)

    async def _follow_forwardings(self, stack: AsyncExitStack) -> None:
        """Follow topic `forwarding`, and wait until all that it has now is known."""
        known = asyncio.Event()
        reader = BatchReader(
            self._settings.bootstrap_servers,
            f"{self._settings.client_id}-forwardings",
            FORWARDING,
            asyncio.get_running_loop(),
            on_records=self._take_forwardings,
            on_caught_up=known.set,
            opened=self._open_forwardings,
        )
        reader.start()
        stack.push_async_callback(reader.close)
        await known.wait()

    def _open_forwardings(self, records: Sequence[Any]) -> list[Any]:
        return self._keys.open_messages(records)

    def _take_forwardings(self, records: list[Any]) -> None:
        now = time.monotonic()
        for record in records:
            key = record.key() or b""
            try:
                user, forwarding_id = parse_key(key)
            except MALFORMED:
                logger.warning("a record of topic %s is no forwarding of ours", FORWARDING)
                continue
            value = record.value()
            forwarding: Forwarding | None = None
            try:
                forwarding = None if value is None else decode_forwarding(value)
            except MALFORMED:
                logger.warning("a forwarding of user %r cannot be read and is left out", user)
            before = self._ledger.route((user, forwarding_id))
            if forwarding is None and before is not None:
                for partition in before.entries:
                    self._forget_progress(record_key(user, forwarding_id, partition))
            route = self._ledger.put((user, forwarding_id), forwarding)
            if route is not None:
                self._schedule.hasten(route, now)
        self._work.set()

    def _forget_progress(self, key: bytes) -> None:
        # What cannot be written now stays as a record that nobody asks for.
        try:
            self._producer.send(FORWARDING_PROGRESS, None, key, None, _ignore)
        except AppendError as error:
            logger.debug("%s: %s", FORWARDING_PROGRESS, error)

    # ---- what the group reads ----

    async def _read(self) -> None:
        while True:
            try:
                read, assigned = await self._group.read(self._open_wanted)
                self._take_read(read)
                if assigned:
                    await self._begin(assigned)
                await self._place()
            except (KafkaException, NotFetched) as error:
                if self._said.count(time.monotonic()) is not None:
                    logger.warning("the log does not answer: %s", _text(error))
                await asyncio.sleep(_PAUSE_S)

    def _open_wanted(self, messages: list[Any]) -> list[Any]:
        """Return the messages of users who have forwardings, with plain values; in any thread."""
        wanted = [each for each in messages if self._ledger.has_user(_user_of(each.key()))]
        return wanted if self._opened is None or not wanted else self._opened(wanted)

    def _take_read(self, read: Read) -> None:
        now = time.monotonic()
        for partition, end in read.ends.items():
            if self._ledger.position(partition) is None:
                continue  # of a partition that was given back meanwhile
            arrived = self._arrived(read.messages.get(partition, ()))
            for route in self._ledger.take_live(partition, arrived, end, now):
                self._schedule.offer(route, now)
        self._work.set()

    def _arrived(self, messages: Sequence[Any]) -> list[Arrived]:
        found = []
        for message in messages:
            key, value = message.key(), message.value()
            if key is None or value is None:
                continue
            try:
                name = key.decode()
                # A device's records go to its owner alone, whatever somebody wrote under its name.
                if _device_of(value).device != name:
                    continue
            except MALFORMED:
                continue
            stored_ms = message.timestamp()[1]
            if self._erasures.covers(name, stored_ms):
                continue
            user, _, device = name.partition("/")
            record = SinkRecord(
                topic=LOCATION,
                partition=message.partition(),
                key=name,
                value=value,
                timestamp=stored_ms,
                offset=message.offset(),
                original_topic=LOCATION,
                original_partition=message.partition(),
                original_offset=message.offset(),
            )
            found.append(Arrived(user, device, stored_ms, record))
        return found

    async def _begin(self, assigned: Sequence[Assigned]) -> None:
        """Take partitions: read how far their forwardings are, then let the group read them."""
        servers, client_id = self._settings.bootstrap_servers, self._settings.client_id
        progress = await read_progress(servers, client_id, self._open_forwardings)
        for partition, position, first, end in assigned:
            known = progress.get(partition, {})
            self._ledger.assign(partition, position, first, end, known)
            for key in known.keys() - {(each.user, each.id) for each in self._ledger.routes()}:
                # It was removed while no worker ran.
                self._forget_progress(record_key(*key, partition))
            self._tasks[partition] = spawn(
                self._read_again(partition), f"reading {LOCATION}-{partition} again", endless=True
            )
        self._is_member = False
        await self._group.resume([each.partition for each in assigned])

    async def _place(self) -> None:
        """Look up where new forwardings begin, some at once."""
        for route, entry in [
            pair for _, pair in zip(range(_PLACED_AT_ONCE), self._ledger.unplaced(), strict=False)
        ]:
            # What is stored from now on is behind it, also if it comes before the answer.
            position = self._ledger.position(entry.partition)
            found = await self._group.offset_of_time(entry.partition, route.forwarding.since)
            if entry.offset is None:
                entry.offset = position if found is None else found
        self._work.set()

    def _revoked(self, partitions: Sequence[int]) -> dict[int, int]:
        commits = self._ledger.commits()
        self._store(self._ledger.to_store(time.monotonic(), is_member=False, is_last=True))
        self._lost(partitions)
        return {each: offset for each, offset in commits.items() if each in partitions}

    def _lost(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._ledger.revoke(partition)
            task = self._tasks.pop(partition, None)
            if task is not None:
                task.cancel()

    # ---- what is read again ----

    async def _read_again(self, partition: int) -> None:
        """Read a partition for the forwardings that are behind, chunk by chunk."""
        while True:
            began = time.monotonic()
            chosen = self._chosen(partition)
            if not chosen:
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                await self._read_chunk(partition, chosen)
            except (NotFetched, MalformedAnswer, KafkaException) as error:
                if self._said.count(time.monotonic()) is not None:
                    logger.warning("%s-%d cannot be read: %s", LOCATION, partition, _text(error))
                await asyncio.sleep(_PAUSE_S)
            # At most half of the time is spent on this: the live ones go first.
            await asyncio.sleep(min(time.monotonic() - began, _LOOK_S))

    def _chosen(self, partition: int) -> list[tuple[Route, Entry]]:
        """Return whom to read for: of a server that is down only one forwarding."""
        now = time.monotonic()
        down: set[str] = set()
        chosen = []
        for route, entry in self._ledger.eligible(partition):
            if not self._schedule.may_try(route, now):
                continue
            if self._schedule.is_failing(route):
                if route.origin in down:
                    continue
                down.add(route.origin)
            chosen.append((route, entry))
        return chosen

    async def _read_chunk(self, partition: int, chosen: list[tuple[Route, Entry]]) -> None:
        entry = chosen[0][1]
        start, place = entry.offset, (LOCATION, partition)
        assert start is not None
        self._ledger.had_turn(entry)
        records, left = await self._fetcher.fetch({place: start}, {place: start + _FAR})
        end = left.get(place)
        if end is None:
            # The log ends before: it is another one than it was.
            end = start
        elif not records and end > start:
            first = await self._group.first_offset(partition)
            if first > start:
                self._ledger.skip_deleted(partition, start, first)
                return
        users = {route.user for route, _ in chosen}
        wanted: list[Any] = [each for each in records if _user_of(each.key()) in users]
        if wanted and self._opened is not None:
            wanted = await asyncio.to_thread(self._opened, wanted)
        now = time.monotonic()
        touched = self._ledger.take_behind(
            *(partition, start, end, self._arrived(wanted), chosen, now)
        )
        for route in touched:
            self._schedule.offer(route, now)
        if touched:
            self._work.set()

    # ---- sending ----

    async def _send(self) -> None:
        """Start the requests that have their turn."""
        while True:
            now = time.monotonic()
            for route in self._schedule.next(now):
                self._sending.start(self._send_turn(route), partial(self._has_failed, route))
            due = self._schedule.due()
            wait_s = _PAUSE_S if due is None else min(max(due - time.monotonic(), 0.01), _PAUSE_S)
            try:
                async with asyncio.timeout(wait_s):
                    await self._work.wait()
            except TimeoutError:
                continue
            self._work.clear()

    async def _send_turn(self, route: Route) -> None:
        began = time.monotonic()
        revision = route.forwarding.revision
        records: list[SinkRecord] = []
        erased: list[SinkRecord] = []
        for record in route.batch(_TURN_RECORDS):
            is_gone = self._erasures.covers(record.key, record.timestamp or 0)
            (erased if is_gone else records).append(record)
        self._ledger.done(route, erased, began)
        result = Result()
        if records:
            result = await self._http.deliver(route, records)
        now = time.monotonic()
        self._ledger.done(route, result.done, now)
        for refusal in result.refused:
            self._note_refusal(route, refusal)
        self._counts["forwarded"] += len(result.done) - len(result.refused)
        failure = result.failure
        if failure is not None and revision == route.forwarding.revision:
            self._counts["failed"] += 1
            if route.error != failure.reason:
                route.error, route.error_time = failure.reason, _now_ms()
        elif result.done:
            route.error = route.error_time = None
        self._schedule.end(route, failure, now, now - began)
        self._work.set()

    def _has_failed(self, route: Route, _error: Exception) -> None:
        """Go on after an error of ours, which is in the log, as after one of the server's."""
        route.error, route.error_time = "an error of the platform; its log says more", _now_ms()
        self._schedule.end(route, Failure(route.error), time.monotonic(), 0.0)

    def _note_refusal(self, route: Route, refusal: Refusal) -> None:
        self._counts["refused"] += 1
        route.refused += 1
        route.refusal = str(refusal.error)
        record = refusal.record
        told = {
            "topic": record.original_topic,
            "partition": str(record.original_partition),
            "offset": str(record.original_offset),
            "connector.name": f"forwarding {route.user}/{route.id}",
            "exception.class.name": kafka_name_of(refusal.error),
            "exception.message": str(refusal.error),
        }
        headers: list[tuple[str, str | bytes | None]] = [
            (CONNECT_PREFIX + name, text.encode("utf-8", "replace")) for name, text in told.items()
        ]
        key = str(record.key).encode()
        try:
            self._letters.send(FORWARDING_DEAD_LETTER, record.value, key, headers, _ignore)
        except AppendError as error:
            # The fix itself is in `location`, and the owner sees that something was refused.
            if self._said.count(time.monotonic()) is not None:
                logger.warning("a dead letter of a forwarding is not stored: %s", error)

    # ---- what the log is told ----

    async def _keep(self) -> None:
        """Commit, store progress, and let those fall behind that do not keep up."""
        now = time.monotonic()
        self._ledger.give_up_waiting(now)
        self._is_member = await self._group.commit(self._ledger.commits())
        self._store(self._ledger.to_store(now, is_member=self._is_member))

    def _store(self, written: Sequence[ToStore]) -> None:
        for each in written:
            key = record_key(each.route.user, each.route.id, each.entry.partition)
            value = sealed_with_known_key(
                self._keys, FORWARDING_PROGRESS, key, encode(each.progress)
            )
            if value is None:
                # The owner was erased; the forwarding ends when its tombstone comes.
                self._ledger.not_stored(each)
                continue
            try:
                self._producer.send(
                    FORWARDING_PROGRESS, value, key, None, partial(self._answered, each)
                )
            except AppendError:
                self._ledger.not_stored(each)

    def _answered(self, written: ToStore, error: AppendError | None, _position: Any) -> None:
        if error is None:
            self._ledger.stored(written, time.monotonic())
        else:
            self._ledger.not_stored(written)

    async def _report(self) -> None:
        counts = ", ".join(f"{name}: {count}" for name, count in self._counts.items())
        logger.info("%d forwardings; records %s", len(self._ledger), counts)

    async def _leave(self) -> None:
        """Leave the group, which commits; the producer stores what is to be stored afterwards."""
        with suppress(TimeoutError):
            # What is answered in time does not come again.
            async with asyncio.timeout(_FINISH_S):
                await self._sending.wait()
        await self._group.close()
        for task in self._tasks.values():
            task.cancel()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _ignore(_error: AppendError | None, _position: Any) -> None:
    """Take no note of what became of a record."""


def _user_of(key: bytes | None) -> str:
    return (key or b"").partition(b"/")[0].decode("utf-8", "replace")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(error: Exception) -> str:
    return error_text(error) if isinstance(error, KafkaException) else str(error)
