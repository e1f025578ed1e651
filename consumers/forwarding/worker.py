"""The work of `waylog forwarding run`: puts ledger, schedule, readers and deliveries together."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException

from consumers.forwarding.arrivals import arrived, user_of
from consumers.forwarding.group_reader import Assigned, GroupReader, Read, ToWrite
from consumers.forwarding.http_delivery import HttpDelivery
from consumers.forwarding.ledger import Ledger, RouteKey, ToStore
from consumers.forwarding.mqtt_delivery import MqttDelivery
from consumers.forwarding.progress_log import read_progress
from consumers.forwarding.progress_writer import Record
from consumers.forwarding.reading_again import ReadingAgain
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import Pauses, Schedule
from consumers.forwarding.sending import Sending
from consumers.forwarding.ways_out import WaysOut
from waylog.forwarding.definition import (
    MQTT,
    Forwarding,
    decode_forwarding,
    encode,
    parse_key,
    record_key,
)
from waylog.forwarding.keys import sealed_with_known_key
from waylog.forwarding.pauses import KnownPauses, Pause, decode_pause, parse_pause_key
from waylog.history.erasures import ErasureLog
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.errors import error_text
from waylog.kafka.partition_fetcher import PartitionFetcher
from waylog.kafka.topics import (
    FORWARDING,
    FORWARDING_PROGRESS,
    LOCATION,
)
from waylog.malformed import MALFORMED
from waylog.network.outbound.name_lookups import NameLookups
from waylog.network.outbound.reachable_networks import ReachableNetworks
from waylog.process.background import PeriodicTask, spawn
from waylog.process.log_throttle import LogThrottle
from waylog.sealing.sealing import opener, sealed_if_configured
from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

_FETCH_S: Final = 10.0
_TICK_S: Final = 1.0
#: First offsets that are looked up between two reads of the group.
_PLACED_AT_ONCE: Final = 200
_REPORT_S: Final = 60.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `waylog forwarding run`."""

    bootstrap_servers: str
    group: str
    client_id: str
    networks: ReachableNetworks
    #: The authorities whose certificates servers may have.
    trusted: ssl.SSLContext
    pauses: Pauses = Pauses()
    timeout_s: float = 10.0
    session_timeout_s: float = 10.0


class ForwardingWorker:
    """Used on one event loop."""

    def __init__(self, settings: WorkerSettings, keys: KeyRing) -> None:
        self._settings: Final = settings
        self._keys: Final = keys
        self._ledger: Final = Ledger()
        self._schedule: Final = Schedule(settings.pauses)
        self._tasks: Final[dict[int, asyncio.Task[None]]] = {}
        self._unreadable: Final[set[RouteKey]] = set()
        self._pauses: Final = KnownPauses()
        #: The offsets that the log has of the group, by partition.
        self._committed: Final[dict[int, int]] = {}
        #: Keys of progress that the log is to forget.
        self._forgotten: Final[set[bytes]] = set()
        self._said: Final = LogThrottle()

    @property
    def fatal(self) -> str | None:
        """Why nothing can be written until a new start."""
        return self._producer.fatal

    async def start(self, stack: AsyncExitStack) -> None:
        """Begin; all that is started is closed by the stack. Raises LogUnreachable, ConfigError."""
        settings, loop = self._settings, asyncio.get_running_loop()
        servers, client_id = settings.bootstrap_servers, settings.client_id
        self._opened = opener(servers, is_repeated=True)
        self._producer = BatchProducer(servers, client_id, loop)
        self._letters = sealed_if_configured(self._producer, servers, loop)
        stack.push_async_callback(self._letters.close)
        erasures = ErasureLog(servers)
        stack.callback(erasures.close)
        self._erasures = erasures.erasures
        await asyncio.to_thread(erasures.wait)
        self._fetcher = PartitionFetcher(servers, f"{client_id}-again", answer_timeout_s=_FETCH_S)
        stack.push_async_callback(self._fetcher.close)
        ways = WaysOut(settings.networks, NameLookups())
        http = HttpDelivery(ways, settings.trusted, settings.timeout_s)
        mqtt = MqttDelivery(ways, settings.trusted, settings.timeout_s)
        stack.push_async_callback(http.close)
        stack.push_async_callback(mqtt.close)
        self._sending = Sending(
            *(self._ledger, self._schedule, http, {MQTT: mqtt}),
            *(self._letters, self._erasures),
        )
        stack.push_async_callback(self._sending.close)
        await self._follow_forwardings(stack)
        self._group = GroupReader(
            *(servers, client_id, settings.group),
            session_timeout_s=settings.session_timeout_s,
            to_write=self._to_write,
            on_gone=self._gone,
        )
        self._again = ReadingAgain(
            *(self._ledger, self._schedule, self._fetcher, self._erasures, self._opened),
            *(self._group.first_offset, self._sending.work),
        )
        stack.push_async_callback(self._leave)
        for work in (
            spawn(self._read(), "reading for forwardings", endless=True),
            spawn(self._sending.run(), "sending forwardings", endless=True),
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
            pause_id = parse_pause_key(key)
            if pause_id is not None:
                self._take_pause(pause_id, record.value(), now)
                continue
            try:
                user, forwarding_id = parse_key(key)
            except MALFORMED:
                logger.warning("a record of topic %s is no forwarding of ours", FORWARDING)
                continue
            value = record.value()
            forwarding: Forwarding | None = None
            self._unreadable.discard((user, forwarding_id))
            try:
                forwarding = None if value is None else decode_forwarding(value)
            except MALFORMED:
                # Of a newer version, or sealed with another master key: it ends here, and goes on
                # where it was when it can be read again.
                logger.warning("a forwarding of user %r cannot be read and is left out", user)
                self._unreadable.add((user, forwarding_id))
                self._ledger.put((user, forwarding_id), None)
                continue
            before = self._ledger.route((user, forwarding_id))
            if forwarding is None and before is not None:
                self._forgotten.update(
                    record_key(user, forwarding_id, partition) for partition in before.entries
                )
            route = self._ledger.put((user, forwarding_id), forwarding)
            if route is not None:
                self._pause_or_resume(route)
                self._schedule.hasten(route, now)
        self._sending.work.set()

    def _take_pause(self, pause_id: str, value: bytes | None, now: float) -> None:
        pause: Pause | None = None
        try:
            pause = None if value is None else decode_pause(value)
        except MALFORMED:
            logger.warning("what an administrator has paused cannot be read and is left out")
        ended = self._pauses.put(pause_id, pause)
        for each in (ended, pause):
            if each is None:
                continue
            concerned = (
                self._ledger.routes() if each.user is None else self._ledger.routes_of(each.user)
            )
            for route in concerned:
                if each.covers(route.user, route.id, route.forwarding):
                    self._pause_or_resume(route)
                    self._schedule.hasten(route, now)

    def _pause_or_resume(self, route: Route) -> None:
        """Have a forwarding be paused if a pause of an administrator covers it, and only then."""
        pause = self._pauses.of(route.user, route.id, route.forwarding)
        if route.is_paused_by_administrator != (pause is not None):
            self._ledger.pause(route, is_paused=pause is not None)

    # ---- what the group reads ----

    async def _read(self) -> None:
        while True:
            # An error ends the process: what was read would be passed over otherwise.
            read, assigned = await self._group.read(self._open_wanted)
            self._take_read(read)
            if assigned:
                await self._begin(assigned)
            try:
                await self._place()
            except KafkaException as error:
                if self._said.count(time.monotonic()) is not None:
                    logger.warning("topic %s does not answer: %s", LOCATION, error_text(error))

    def _open_wanted(self, messages: list[Any]) -> list[Any]:
        """Return the messages of users who have forwardings, with plain values; in any thread."""
        wanted = [each for each in messages if self._ledger.has_user(user_of(each.key()))]
        return self._opened(wanted) if wanted else wanted

    def _take_read(self, read: Read) -> None:
        now = time.monotonic()
        for partition, end in read.ends.items():
            if self._ledger.position(partition) is None:
                continue  # of a partition that was given back meanwhile
            found = arrived(read.messages.get(partition, ()), self._erasures)
            for route in self._ledger.take_live(partition, found, end, now):
                self._schedule.offer(route, now)
        self._sending.work.set()

    async def _begin(self, assigned: Sequence[Assigned]) -> None:
        """Take partitions: read how far their forwardings are, then let the group read them."""
        servers, client_id = self._settings.bootstrap_servers, self._settings.client_id
        progress = await read_progress(servers, client_id, self._open_forwardings)
        for partition, position, first, end, committed in assigned:
            known = progress.get(partition, {})
            self._ledger.assign(partition, position, first, end, known, committed)
            there = {(each.user, each.id) for each in self._ledger.routes()}
            # They were removed while no worker ran.
            self._forgotten.update(
                record_key(*key, partition) for key in known.keys() - there - self._unreadable
            )
            self._tasks[partition] = spawn(
                self._again.run(partition), f"reading {LOCATION}-{partition} again", endless=True
            )
        await self._group.resume([each.partition for each in assigned])

    async def _place(self) -> None:
        """Look up where new forwardings begin, some at once."""
        new = list(islice(self._ledger.unplaced(), _PLACED_AT_ONCE))
        if not new:
            return
        wanted: dict[int, set[int]] = {}
        for route, entry in new:
            wanted.setdefault(route.forwarding.since, set()).add(entry.partition)
        # What is stored from now on is behind it, also if it comes before the answer.
        before = {entry: self._ledger.position(entry.partition) for _, entry in new}
        found = await self._group.offsets_of_times(wanted)
        first = {
            each: await self._group.first_offset(each)
            for each in sorted(set().union(*wanted.values()))
        }
        for route, entry in new:
            offset = found.get((route.forwarding.since, entry.partition), before[entry])
            if offset is None:
                offset = before[entry]
            if offset is not None:
                self._ledger.place(entry, offset, first[entry.partition])
        self._sending.work.set()

    def _gone(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._ledger.revoke(partition)
            self._committed.pop(partition, None)
            task = self._tasks.pop(partition, None)
            if task is not None:
                task.cancel()

    # ---- what the log is told ----

    async def _keep(self) -> None:
        """Let those fall behind that do not keep up; commit, and store progress."""
        self._ledger.give_up_waiting(time.monotonic())
        await self._group.keep()

    def _to_write(self, leaving: Sequence[int]) -> ToWrite | None:
        """Return what the log does not have yet, None if it has all that is due."""
        offsets = self._ledger.commits()
        written: list[ToStore] = []
        records: list[Record] = [(key, None) for key in self._forgotten]
        for each in self._ledger.to_store(time.monotonic(), leaving):
            key = record_key(each.route.user, each.route.id, each.entry.partition)
            value = sealed_with_known_key(
                self._keys, FORWARDING_PROGRESS, key, encode(each.progress)
            )
            # Otherwise the owner was erased; the forwarding ends when its tombstone comes.
            if value is not None:
                written.append(each)
                records.append((key, value))
        if not offsets or (not records and offsets == self._committed):
            return None
        done = partial(self._written, offsets, written, frozenset(self._forgotten))
        return ToWrite(offsets, records, done)

    def _written(
        self,
        offsets: dict[int, int],
        written: Sequence[ToStore],
        forgotten: frozenset[bytes],
        is_written: bool,
    ) -> None:
        now = time.monotonic()
        if not is_written:
            for each in written:
                self._ledger.not_stored(each)
            return
        self._committed.update(offsets)
        self._forgotten.difference_update(forgotten)
        for each in written:
            self._ledger.stored(each, now)

    async def _report(self) -> None:
        counts = ", ".join(f"{name}: {count}" for name, count in self._sending.counts.items())
        logger.info("%d forwardings; records %s", len(self._ledger), counts)

    async def _leave(self) -> None:
        """Finish what is under way, store how far all are, and leave the group."""
        await self._sending.finish()
        await self._sending.close()
        await self._group.close()
        for task in self._tasks.values():
            task.cancel()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
