"""Saves the views of a process, and brings them up to date when it starts.

A snapshot (gateway.views.snapshots.saved_views) is written every half minute if records have come,
soon after an erasure, and at the stop. The next process of the same folder reads the log from
there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.fixes.log_topics import LogWait
from gateway.views.address_view import AddressView
from gateway.views.location_view import LocationView
from gateway.views.snapshots.key_view import KeyView
from gateway.views.snapshots.reading_plan import BEHIND_MAX, OffsetRanges, ReadingPlan, plan
from gateway.views.snapshots.saved_views import UNWRITTEN_BYTES_MAX, SavedViews
from gateway.views.view import Record
from waylog.history.erasures import Erasure, ErasureLog, Erasures
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.ranges.topic_extent import TopicExtent, topic_extent
from waylog.kafka.topics import LOCATION
from waylog.process.background import spawn
from waylog.sealing.sealing import repeated_opener

logger = logging.getLogger(__name__)

_SAVE_S: Final = 30.0
#: Number of unsaved keys at which a snapshot is written early.
_SAVE_KEYS: Final = 500_000
_WATCH_S: Final = 0.25
_EXPIRE_S: Final = 3600.0
_RETRY_S: Final = 0.2
#: Seconds that the start waits for tracks from before the snapshot.
_RECENT_S: Final = 2.0


class ViewKeeper:
    """The views of one process, their readers, and their folder.

    A gateway has both views, a bridge only a KeyView.
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
        unwritten_bytes_max: int = UNWRITTEN_BYTES_MAX,
        save_s: float = _SAVE_S,
    ) -> None:
        """`save_s`: seconds between two snapshots while records come."""
        self._servers = bootstrap_servers
        self._client_id = client_id
        self._locations = locations
        self._addresses = addresses
        self._erasures = Erasures() if addresses is None else addresses.erasures
        self._views: dict[str, LocationView | KeyView | AddressView] = {locations.topic: locations}
        if addresses is not None:
            self._views[addresses.topic] = addresses
        self._tail = tail
        self._behind_max = behind_max
        self._save_s = save_s
        self._loop = asyncio.get_running_loop()
        self._folder = folder
        self._saved_views = SavedViews(
            bootstrap_servers, locations, self._views, unwritten_bytes_max
        )
        self._readers: list[BatchReader] = []
        #: Why the start does not get on: a topic is missing, say, or the log does not answer.
        self.trouble: str | None = None
        #: The readers of new records, by topic.
        self.live: dict[str, BatchReader] = {}
        #: Set when the ids of all fixes that were in the log at the start can be looked up.
        self.all_known = asyncio.Event()
        #: Ranges of each topic that have not been read: next offset, end.
        self.gaps: dict[str, OffsetRanges] = {topic: {} for topic in self._views}
        self._erasure_log: ErasureLog | None = None
        self._urgent = False
        self._changed = False
        self._stopping = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        # Each snapshot begins with the key files of the one before.
        self._one_save = asyncio.Lock()
        self._saved = self._expired = self._loop.time()

    @property
    def unread(self) -> int:
        """Return the number of older records that have not been read so far."""
        return sum(end - offset for gaps in self.gaps.values() for offset, end in gaps.values())

    async def start(self) -> None:
        """Return when the views have loaded the snapshot and the records since then."""
        extents = {topic: await self._extent(topic) for topic in self._views}
        if self._folder is not None:
            self._saved_views.open(self._folder)
        head = await self._saved_views.restore(extents)
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
            # Fetched at once: a fix stored by another worker must soon be known here as a repeat.
            self._read(view, plans[topic], {"fetch_min_bytes": 1} if topic == LOCATION else {})
        for view in self._views.values():
            await view.caught_up.wait()
        if self._addresses is not None:
            # A KeyView has neither data of devices nor tracks.
            self._addresses.on_erased(self._erased)
            await self._follow_erasures()
            await self._read_recent(plans[LOCATION].recent)
        for topic in self._views:
            self._read_gap(topic)
        if not self._saved_views.is_open or not self.unread:
            self.all_known.set()
        if self._saved_views.is_open:
            self._saving = spawn(self._keep_saving(), "saving the views", loop=self._loop)

    async def close(self) -> None:
        """Save the views and stop reading."""
        self._stopping.set()
        if self._saving is not None:
            await self._saving
        if self._erasure_log is not None:
            await self._loop.run_in_executor(None, self._erasure_log.close)
        for reader in self._readers:
            await reader.close()
        if self._saving is not None:
            await self.save()
        self._saved_views.close()

    # --- the start ------------------------------------------------------------------------------

    async def _extent(self, topic: str) -> TopicExtent:
        wait = LogWait()
        while True:
            try:
                extent = await self._saved_views.in_thread(
                    topic_extent, self._servers, self._client_id, topic
                )
            except LogUnreachable as error:
                self.trouble = str(error)
                wait.tell(error)
                await asyncio.sleep(_RETRY_S)
            else:
                self.trouble = None
                return extent

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
    ) -> BatchReader:
        reader = BatchReader(
            self._servers,
            f"{self._client_id}-{name}",
            topic,
            self._loop,
            on_records=on_records,
            on_caught_up=on_caught_up,
            starts=starts,
            opened=repeated_opener(self._servers),
            **more,
        )
        reader.start()
        self._readers.append(reader)
        return reader

    async def _read_recent(self, stretches: OffsetRanges) -> None:
        """Read tracks of the range that the snapshot covers, within a time limit."""
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
        """Read in the background the range that is too long for the start."""
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
            self._urgent = True  # the ids count as known when they are on disk
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
        """Return when all erasures in the log have been applied."""

        def in_thread(erasure: Erasure) -> None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._erased, *msgspec.structs.astuple(erasure))

        self._erasure_log = ErasureLog(self._servers, in_thread)
        while True:
            try:
                await self._saved_views.in_thread(self._erasure_log.wait)
                break
            except LogUnreachable as error:
                logger.warning("still waiting: %s", error)
        for device, erased_ms in self._erasure_log.erasures.known().items():
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
            due = now - self._saved >= self._save_s and (records != taken or self._changed)
            many = known.unsaved >= _SAVE_KEYS and not self._saved_views.failing
            if not (due or self._urgent or many):
                continue
            taken, self._urgent, self._changed = records, False, False
            try:
                await self.save()
                if now - self._expired >= _EXPIRE_S:
                    self._expired = now
                    self._saved_views.first = (await self._extent(LOCATION)).first
            except Exception:
                # Whatever failed, the next snapshot may succeed, and the log has everything.
                logger.exception("a snapshot of the views failed")
                self._changed = True
            self._saved = self._loop.time()

    async def save(self) -> None:
        """Write a snapshot: the content of the views, and how far the log has been read.

        A call that comes while another one writes waits for it.
        """
        async with self._one_save:
            all_read = not any(self.gaps.values())
            saved = await self._saved_views.save(self.gaps)
            if saved.written:
                self._urgent = self._urgent or saved.more
            else:
                self._urgent, self._changed = False, True
            if all_read:
                self.all_known.set()  # even if nothing could be written: no more can be known
