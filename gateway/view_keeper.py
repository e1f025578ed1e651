"""Keeps what the views know beyond the process, and brings them up to date when it starts.

A snapshot (gateway.view_snapshot) is written every half minute in which something came, soon after
an erasure, and at the stop. The next process of the same folder reads the log from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

import msgspec

from gateway.device_times import DeviceTimes
from gateway.key_runs import KeyRuns, alive
from gateway.key_view import KeyView
from gateway.known_fixes import device_key
from gateway.reading_plan import BEHIND_MAX, ReadingPlan, Stretches, fits, plan
from gateway.stored_keys import StoredKeys
from gateway.view_folder import ViewFolder
from gateway.view_snapshot import VERSION, Entry, Head, RunEntry, SavedTopic, Unfit, read, write
from gateway.views import AddressView, LocationView, Record
from waylog.batch_reader import BatchReader, open_reader
from waylog.erasures import Erasure, ErasureLog, Erasures
from waylog.kafka import LogReader, LogUnreachable
from waylog.sealing import opener, shared_key_ring
from waylog.topic_extent import TopicExtent, topic_extent
from waylog.topics import LOCATION

if TYPE_CHECKING:
    from waylog.value_keys import KeyRing

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

_SAVE_S: Final = 30.0
#: As many keys are saved at once when they come quicker.
_SAVE_KEYS: Final = 500_000
#: Keys that wait in memory while nothing can be written; more wait with whoever has made them.
_UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
_WATCH_S: Final = 0.25
_EXPIRE_S: Final = 3600.0
_RETRY_S: Final = 0.2
#: What one turn of the event loop takes of the views: a fraction of a millisecond.
_SLICE: Final = 250
#: Tracks of what was before are there soon after the start.
_RECENT_S: Final = 2.0
_DAY_S: Final = 24 * 3600
_SNAPSHOT: Final = "snapshot"


class ViewKeeper:
    """The views of one process, their readers, and their folder.

    Both of a gateway; of a bridge a KeyView alone.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        locations: LocationView | KeyView,
        addresses: AddressView | None,
        *,
        folder: Path | None,
        tail: int,
        behind_max: int = BEHIND_MAX,
        unwritten_bytes_max: int = _UNWRITTEN_BYTES_MAX,
    ) -> None:
        self._servers = bootstrap_servers
        self._client_id = client_id
        self._locations = locations
        self._addresses = addresses
        self._erasures = Erasures() if addresses is None else addresses.erasures
        self._views: dict[str, LocationView | KeyView | AddressView] = {locations.topic: locations}
        if addresses is not None:
            self._views[addresses.topic] = addresses
        self._parent = folder
        self._tail = tail
        self._behind_max = behind_max
        self._unwritten_bytes_max = unwritten_bytes_max
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="views")
        self._folder: ViewFolder | None = None
        self._runs: KeyRuns | None = None
        self._entries: list[RunEntry] = []
        self._identities: dict[str, str] = {}
        self._first: Mapping[int, int] = {}
        # Keys that could not be written, in front of those that came since.
        self._unwritten = b""
        # What of topic `location` is on disk for certain.
        self._covered: SavedTopic | None = None
        self._readers: list[LogReader | BatchReader] = []
        #: Who reads what comes from now on, by topic.
        self.live: dict[str, LogReader | BatchReader] = {}
        #: Set when the ids of all fixes can be asked for that the log had at the start.
        self.all_known = asyncio.Event()
        #: Stretches of each topic that have not been read: first offset left, end.
        self.gaps: dict[str, Stretches] = {topic: {} for topic in self._views}
        self._erasure_log: ErasureLog | None = None
        self._urgent = False
        self._changed = False
        self._failing = False
        self._stopping = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self._saved = self._expired = self._loop.time()

    @property
    def unread(self) -> int:
        """Records of before the start that have not been read so far."""
        return sum(end - offset for gaps in self.gaps.values() for offset, end in gaps.values())

    async def start(self) -> None:
        """Return when the views know what they knew before and what came since."""
        extents = {topic: await self._extent(topic) for topic in self._views}
        self._identities = {topic: extent.identity for topic, extent in extents.items()}
        self._first = extents[LOCATION].first
        head = await self._restore(extents) if self._open_folder() else None
        plans = {
            topic: plan(
                *(None if head is None else head.topics.get(topic), extent),
                *(self._tail, self._behind_max),
            )
            for topic, extent in extents.items()
        }
        self.gaps = {topic: dict(each.gaps) for topic, each in plans.items()}
        for topic, view in self._views.items():
            view.positions.update(plans[topic].starts)
            # At once: what another worker has stored must soon be known as a repeat here.
            self._read(view, plans[topic], {"fetch_min_bytes": 1} if topic == LOCATION else {})
        for view in self._views.values():
            await view.caught_up.wait()
        if self._addresses is not None:
            # Keys alone say nothing of anybody, and have no tracks.
            self._addresses.on_erased(self._erased)
            await self._follow_erasures()
            await self._read_recent(plans[LOCATION].recent)
        for topic in self._views:
            self._read_gap(topic)
        if self._folder is None or not self.unread:
            self.all_known.set()
        if self._folder is not None:
            self._saving = self._loop.create_task(self._keep_saving())

    async def close(self) -> None:
        """Save what there is, and stop reading."""
        self._stopping.set()
        if self._saving is not None:
            await self._saving
        if self._erasure_log is not None:
            await self._loop.run_in_executor(None, self._erasure_log.close)
        for reader in self._readers:
            await reader.close()
        if self._saving is not None:
            await self.save()
        self._thread.shutdown(wait=False)
        if self._folder is not None:
            self._folder.close()

    # --- the start ------------------------------------------------------------------------------

    async def _extent(self, topic: str) -> TopicExtent:
        while True:
            try:
                return await self._in_thread(topic_extent, self._servers, self._client_id, topic)
            except LogUnreachable as error:
                logger.debug("not yet: %s", error)
                await asyncio.sleep(_RETRY_S)

    def _open_folder(self) -> bool:
        if self._parent is None:
            return False
        try:
            self._folder = ViewFolder(self._parent)
        except OSError as error:
            logger.warning(
                "last positions and ids of fixes are not kept beyond this process: %s", error
            )
            return False
        stored = StoredKeys()
        self._runs = KeyRuns(self._folder.path, stored)
        self._locations.known_fixes.keep(stored, DeviceTimes())
        return True

    async def _restore(self, extents: Mapping[str, TopicExtent]) -> Head | None:
        assert self._folder is not None
        assert self._runs is not None
        try:
            head, parts = await self._in_thread(read, self._folder.path / _SNAPSHOT)
            if head.key_check != _key_check():
                raise Unfit("it is of another installation")
            for topic, extent in extents.items():
                if topic not in head.topics or not fits(head.topics[topic], extent):
                    raise Unfit(f"it is of another log: topic {topic}")
            restored = await self._restore_entries(parts)
        except Unfit as error:
            logger.info("views are built from the log, without a snapshot: %s", error)
            for view in self._views.values():
                view.reset()
            self._locations.known_fixes.keep(StoredKeys(), DeviceTimes())
            self._runs = KeyRuns(self._folder.path, self._stored)
            self._runs.use([])
            return None
        self._entries = alive(await self._in_thread(self._runs.open, head.runs), self._first)
        self._runs.use(self._entries)
        self._covered = head.topics[LOCATION]
        self._times.forgot = head.forgot
        logger.info(
            "views had %d entries, and keys of %d fixes in %d files",
            restored,
            len(self._stored),
            len(self._entries),
        )
        return head

    async def _restore_entries(self, parts: Iterator[tuple[str, list[Entry]]]) -> int:
        ring = shared_key_ring(self._servers)
        count = 0
        for topic, kept in parts:
            view = self._views.get(topic)
            if view is None:
                continue
            entries = kept if ring is None else await self._in_thread(_opened, ring, kept)
            count += len(entries)
            for device, live, greatest, value in entries:
                view.restore(device, live, value)
                if greatest is not None:
                    self._times.restore(device_key(device), greatest)
            await asyncio.sleep(0)
        return count

    @property
    def _times(self) -> DeviceTimes:
        times = self._locations.known_fixes.times
        assert times is not None
        return times

    @property
    def _stored(self) -> StoredKeys:
        stored = self._locations.known_fixes.stored
        assert stored is not None
        return stored

    # --- reading --------------------------------------------------------------------------------

    def _read(
        self,
        view: LocationView | KeyView | AddressView,
        planned: ReadingPlan,
        fetching: dict[str, Any],
    ) -> None:
        self.live[view.topic] = self._open(
            *(view.topic, view.topic, view.on_records, view.on_caught_up, planned.starts),
            **fetching,
        )

    def _open(
        self,
        name: str,
        topic: str,
        on_records: Callable[[list[Any]], None],
        on_caught_up: Callable[[], None],
        starts: Mapping[int, int],
        **more: Any,
    ) -> LogReader | BatchReader:
        reader = open_reader(
            self._servers,
            f"{self._client_id}-{name}",
            topic,
            self._loop,
            on_records=on_records,
            on_caught_up=on_caught_up,
            starts=starts,
            opened=opener(self._servers),
            **more,
        )
        reader.start()
        self._readers.append(reader)
        return reader

    async def _read_recent(self, stretches: Stretches) -> None:
        """Have the tracks of what the snapshot covers; not for long."""
        if not stretches:
            return
        done = asyncio.Event()

        def on_records(records: list[Record]) -> None:
            self._locations.on_old_records(records, self._erasures, {}, recent=True)

        self._open(
            "recent",
            LOCATION,
            on_records,
            done.set,
            {partition: first for partition, (first, _) in stretches.items()},
            ends={partition: end for partition, (_, end) in stretches.items()},
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(_RECENT_S):
                await done.wait()

    def _read_gap(self, topic: str) -> None:
        """Read beside everything else what is too much for the start."""
        gaps = self.gaps[topic]
        if not gaps:
            return
        logger.info(
            "%s: %d older records are read beside everything else",
            topic,
            sum(end - first for first, end in gaps.values()),
        )

        view = self._views[topic]

        def on_records(records: list[Record]) -> None:
            positions: dict[int, int] = {}
            if isinstance(view, AddressView):
                view.on_old_records(records, positions)
            else:
                view.on_old_records(records, self._erasures, positions, recent=False)
            for partition, position in positions.items():
                if partition in gaps:
                    end = gaps[partition][1]
                    gaps[partition] = (min(position, end), end)
            self._changed = True

        view.reading_back = True

        def on_caught_up() -> None:
            gaps.clear()
            view.reading_back = False
            self._urgent = True  # the ids are asked for when they are on disk
            logger.info("%s: all older records have been read", topic)

        self._open(
            f"older-{topic}",
            topic,
            on_records,
            on_caught_up,
            {partition: first for partition, (first, _) in gaps.items()},
            ends={partition: end for partition, (_, end) in gaps.items()},
            leisurely=True,
        )

    async def _follow_erasures(self) -> None:
        """Return when those are honoured that the log has."""

        def in_thread(erasure: Erasure) -> None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._erased, *msgspec.structs.astuple(erasure))

        self._erasure_log = ErasureLog(self._servers, in_thread)
        while True:
            try:
                erasures = await self._in_thread(self._erasure_log.wait)
                break
            except LogUnreachable as error:
                logger.warning("still waiting: %s", error)
        for device, erased_ms in erasures.known().items():
            self._erased(device, erased_ms)

    def _erased(self, device: str, erased_ms: int) -> None:
        self._erasures.add(Erasure(device, erased_ms))
        for view in self._views.values():
            view.forget(device, erased_ms)
        self._urgent = True

    # --- saving ---------------------------------------------------------------------------------

    async def _keep_saving(self) -> None:
        taken = -1
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_S):
                    await self._stopping.wait()
            known = self._locations.known_fixes
            now = self._loop.time()
            records = sum(view.records for view in self._views.values())
            due = now - self._saved >= _SAVE_S and (records != taken or self._changed)
            many = known.unsaved >= _SAVE_KEYS and not self._failing
            if not (due or self._urgent or many):
                continue
            taken, self._urgent, self._changed = records, False, False
            try:
                await self.save()
                if now - self._expired >= _EXPIRE_S:
                    self._expired = now
                    self._first = (await self._extent(LOCATION)).first
            except Exception:
                # Whatever it was: the next snapshot may succeed, and the log has everything.
                logger.exception("a snapshot of the views failed")
                self._changed = True
            self._saved = self._loop.time()

    async def save(self) -> None:
        """Write a snapshot; what it holds may be newer than the offsets in it, never older."""
        assert self._runs is not None
        known = self._locations.known_fixes
        topics = {
            topic: SavedTopic(self._identities[topic], dict(view.positions), dict(self.gaps[topic]))
            for topic, view in self._views.items()
        }
        if len(self._unwritten) < self._unwritten_bytes_max:
            self._unwritten += known.take_unsaved()
        waiting = known.unsaved > 0
        all_read = not any(self.gaps.values())
        if waiting or known.unsaved_lost:
            # Whose keys are missing is read again by the next process.
            topics[LOCATION] = self._covered or SavedTopic(self._identities[LOCATION], {})
        head = Head(
            VERSION, _key_check(), topics, [], self._times.forgot or self._locations.evicted
        )
        covers = dict(self._locations.positions)
        keys = self._unwritten
        parts = await self._collected()
        try:
            entries = await self._in_thread(self._write, head, keys, covers, parts)
        except OSError as error:
            if not self._failing:
                logger.error("the views' snapshot cannot be written; trying again: %s", error)
            self._failing, self._urgent, self._changed = True, False, True
            # Without the files of keys that nobody knows of: there may be little room.
            self._runs.use(self._entries)
            if all_read:
                self.all_known.set()  # as far as they ever will be
            return
        if self._failing:
            self._failing = False
            logger.info("the views' snapshot is written again")
        self._unwritten, self._covered = b"", topics[LOCATION]
        self._urgent = self._urgent or waiting
        self._entries = entries
        self._runs.use(entries)
        if all_read:
            self.all_known.set()

    async def _collected(self) -> list[tuple[str, list[Entry]]]:
        """All entries, a slice in each turn of the event loop."""
        parts: list[tuple[str, list[Entry]]] = []
        for view in self._views.values():
            names = list(view.newest)
            for at in range(0, len(names), _SLICE):
                entries = []
                for device in names[at : at + _SLICE]:
                    entry = view.newest.get(device)
                    if entry is None:
                        continue
                    greatest = (
                        self._times.time_of(device_key(device)) if view.topic == LOCATION else None
                    )
                    entries.append(Entry(device, entry[0], greatest, entry[1]))
                parts.append((view.topic, entries))
                await asyncio.sleep(0)
        return parts

    def _write(
        self,
        head: Head,
        keys: bytes,
        covers: dict[int, int],
        parts: list[tuple[str, list[Entry]]],
    ) -> list[RunEntry]:
        """In the thread; returns the files of keys that count now. Raises OSError."""
        assert self._runs is not None
        assert self._folder is not None
        today = int(time.time()) // _DAY_S
        entries = alive(self._entries, self._first)
        if keys:
            entries.append(self._runs.write(keys, today, covers))
        head.runs = self._runs.merged(entries, today)
        ring = shared_key_ring(self._servers)
        sealed = (
            parts
            if ring is None
            else ((topic, _sealed(ring, topic, each)) for topic, each in parts)
        )
        write(self._folder.path / _SNAPSHOT, head, sealed)
        return head.runs

    async def _in_thread(
        self, function: Callable[[*_Arguments], _Result], *arguments: *_Arguments
    ) -> _Result:
        return await self._loop.run_in_executor(self._thread, function, *arguments)


def _key_check() -> int:
    return device_key("waylog")


def _sealed(ring: KeyRing, topic: str, entries: list[Entry]) -> list[Entry]:
    """Raises OSError where a device has no key yet, and the log takes none."""
    try:
        return [
            each._replace(value=ring.seal_value(topic, each.value, each.device.encode()))
            for each in entries
        ]
    except LogUnreachable as error:
        raise OSError(str(error)) from error


def _opened(ring: KeyRing, entries: list[Entry]) -> list[Entry]:
    """The entries without those that nobody can read any more. Raises Unfit."""
    from waylog.value_encryption import NotAuthentic

    opened = []
    for entry in entries:
        try:
            value = ring.open_value(entry.value, entry.device.encode())
        except NotAuthentic:
            continue
        except LogUnreachable as error:
            raise Unfit(str(error)) from error
        if value is not None:
            opened.append(entry._replace(value=value))
    return opened
