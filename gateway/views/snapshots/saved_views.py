"""The saved views of one process in its folder: a snapshot, and files of the ids of fixes.

Everything that takes time runs in one thread. The views are copied on the event loop, in slices
that take a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, TypeVarTuple

from gateway.fixes.device_times import DeviceTimes
from gateway.fixes.known_fixes import device_key
from gateway.fixes.stored_keys import StoredKeys
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from gateway.views.snapshots.key_files import KeyFiles, alive
from gateway.views.snapshots.key_view import KeyView
from gateway.views.snapshots.reading_plan import OffsetRanges, fits
from gateway.views.snapshots.view_folder import ViewFolder
from gateway.views.snapshots.view_snapshot import (
    VERSION,
    Entry,
    Head,
    KeyFileEntry,
    SavedTopic,
    Unfit,
    read,
    write,
)
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.ranges.topic_extent import TopicExtent
from waylog.kafka.topics import LOCATION
from waylog.sealing.sealing import shared_key_ring

if TYPE_CHECKING:
    from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

#: Bytes of keys that wait in memory while nothing can be written; more stay in KnownFixes.
UNWRITTEN_BYTES_MAX: Final = 16 * 1024 * 1024
#: Entries of a view that are copied in one turn of the event loop, in a fraction of a ms.
_SLICE: Final = 250
_DAY_S: Final = 24 * 3600
_SNAPSHOT: Final = "snapshot"


class Saved(NamedTuple):
    """The result of an attempt to save."""

    written: bool
    #: Some keys of fixes are still to be written.
    more: bool


class SavedViews:
    """Saves and restores views; `views` are by topic and include `locations`."""

    def __init__(
        self,
        bootstrap_servers: str,
        locations: LocationView | KeyView,
        views: Mapping[str, LocationView | KeyView | AddressView],
        unwritten_bytes_max: int,
    ) -> None:
        self._servers = bootstrap_servers
        self._locations = locations
        self._views = views
        self._unwritten_bytes_max = unwritten_bytes_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="views")
        self._folder: ViewFolder | None = None
        self._runs: KeyFiles | None = None
        self._entries: list[KeyFileEntry] = []
        self._identities: dict[str, str] = {}
        #: The first offsets in the log of topic `location`; key files of older fixes may be
        #: deleted.
        self.first: Mapping[int, int] = {}
        # Keys that could not be written, followed by those added since.
        self._unwritten = b""
        # The offsets of topic `location` that are known to be on disk.
        self._covered: SavedTopic | None = None
        #: The last attempt to save could not write.
        self.failing = False

    @property
    def is_open(self) -> bool:
        """Tell whether there is a folder."""
        return self._folder is not None

    def open(self, parent: Path) -> None:
        """Take a folder below `parent`; if that fails, nothing outlives this process."""
        try:
            self._folder = ViewFolder(parent)
        except OSError as error:
            logger.warning(
                "last positions and ids of fixes are not kept beyond this process: %s", error
            )
            return
        stored = StoredKeys()
        self._runs = KeyFiles(self._folder.path, stored)
        self._locations.known_fixes.keep(stored, DeviceTimes())

    def close(self) -> None:
        """Release the folder."""
        self._thread.shutdown(wait=False)
        if self._folder is not None:
            self._folder.close()

    async def in_thread(
        self, function: Callable[[*_Arguments], _Result], *arguments: *_Arguments
    ) -> _Result:
        """Call a function in the thread for blocking work."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    # --- the start ------------------------------------------------------------------------------

    async def restore(self, extents: Mapping[str, TopicExtent]) -> Head | None:
        """Load the last snapshot into the views and return its head; None if none fits."""
        self._identities = {topic: extent.identity for topic, extent in extents.items()}
        self.first = extents[LOCATION].first
        if self._folder is None:
            return None
        assert self._runs is not None
        try:
            head, parts = await self.in_thread(read, self._folder.path / _SNAPSHOT)
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
            self._runs = KeyFiles(self._folder.path, self._stored)
            self._runs.use([])
            return None
        self._entries = alive(await self.in_thread(self._runs.open, head.runs), self.first)
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
            entries = kept if ring is None else await self.in_thread(_opened, ring, kept)
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

    # --- saving ---------------------------------------------------------------------------------

    async def save(self, gaps: Mapping[str, OffsetRanges]) -> Saved:
        """Write a snapshot. Its content may be newer than the offsets in it, never older.

        `gaps` are the ranges of each topic that have not been read.
        """
        assert self._runs is not None
        known = self._locations.known_fixes
        topics = {
            topic: SavedTopic(self._identities[topic], dict(view.positions), dict(gaps[topic]))
            for topic, view in self._views.items()
        }
        if len(self._unwritten) < self._unwritten_bytes_max:
            self._unwritten += known.take_unsaved()
        waiting = known.unsaved > 0
        if waiting or known.unsaved_lost:
            # Fixes whose keys are missing must be read again by the next process.
            topics[LOCATION] = self._covered or SavedTopic(self._identities[LOCATION], {})
        head = Head(
            VERSION, _key_check(), topics, [], self._times.forgot or self._locations.evicted
        )
        covers = dict(self._locations.positions)
        keys = self._unwritten
        parts = await self._collected()
        try:
            entries = await self.in_thread(self._write, head, keys, covers, parts)
        except OSError as error:
            if not self.failing:
                logger.error("the views' snapshot cannot be written; trying again: %s", error)
            self.failing = True
            # Deletes key files that no snapshot names, because the disk may be nearly full.
            self._runs.use(self._entries)
            return Saved(written=False, more=waiting)
        if self.failing:
            self.failing = False
            logger.info("the views' snapshot is written again")
        self._unwritten, self._covered = b"", topics[LOCATION]
        self._entries = entries
        self._runs.use(entries)
        return Saved(written=True, more=waiting)

    async def _collected(self) -> list[tuple[str, list[Entry]]]:
        """Copy all entries, a slice in each turn of the event loop."""
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
    ) -> list[KeyFileEntry]:
        """Write everything in the thread; return the valid key files. Raises OSError."""
        assert self._runs is not None
        assert self._folder is not None
        today = int(time.time()) // _DAY_S
        entries = alive(self._entries, self.first)
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


def _key_check() -> int:
    return device_key("waylog")


def _sealed(ring: KeyRing, topic: str, entries: list[Entry]) -> list[Entry]:
    """Encrypt entries. Raises OSError if a device has no key yet and the log takes none."""
    try:
        return [
            each._replace(value=ring.seal_value(topic, each.value, each.device.encode()))
            for each in entries
        ]
    except LogUnreachable as error:
        raise OSError(str(error)) from error


def _opened(ring: KeyRing, entries: list[Entry]) -> list[Entry]:
    """Decrypt entries, without those whose key has been deleted. Raises Unfit."""
    from waylog.sealing.value_encryption import NotAuthentic

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
