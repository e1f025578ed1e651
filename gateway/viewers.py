"""Who watches live, what each may see, and what waits for each: state without sockets."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.auth import Identity
from gateway.metrics import GatewayMetrics
from gateway.permissions import Permissions, Sight, friends_since, may_look_back, may_see, sight_of
from gateway.telling import Telling
from gateway.views import ViewEvent
from waylog.topics import ADDRESS, LOCATION

logger = logging.getLogger(__name__)

#: Events that wait for one viewer in order; beyond it only the newest of each device waits.
ORDERED_EVENTS_MAX: Final = 2_000
#: The same in bytes of values; those are shared by all viewers.
ORDERED_BYTES_MAX: Final = 4 * 1024 * 1024
#: Devices of which something waits for one viewer.
NEWEST_EVENTS_MAX: Final = 20_000
VIEWERS_MAX: Final = 10_000

_CURSOR = re.compile(r"[la]\d{1,9}-\d{1,18}")
_CURSOR_PARTS_MAX: Final = 2_000

Cursor = dict[tuple[str, int], int]


class View(Protocol):
    """The part of a view that says how far it is."""

    topic: str
    positions: dict[int, int]


class BadCursor(ValueError):
    """Not an id of one of our events."""


def encode_cursor(cursor: Cursor) -> str:
    """Next offsets as the id of an event, e.g. `l0-17.l1-4.a0-12`."""
    return ".".join(
        f"{topic[0]}{partition}-{offset}" for (topic, partition), offset in cursor.items()
    )


def decode_cursor(text: str) -> Cursor:
    """Raises BadCursor."""
    cursor: Cursor = {}
    if not text:
        return cursor
    parts = text.split(".")
    if len(parts) > _CURSOR_PARTS_MAX:
        raise BadCursor("the id of an event is too long")
    for part in parts:
        if _CURSOR.fullmatch(part) is None:
            raise BadCursor(f"{text[:60]!r} is not the id of an event of this stream")
        partition, _, offset = part[1:].partition("-")
        cursor[(LOCATION if part[0] == "l" else ADDRESS, int(partition))] = int(offset)
    return cursor


@dataclass(frozen=True)
class BoundingBox:
    """Degrees; a box over the antimeridian has west > east."""

    west: float
    south: float
    east: float
    north: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> BoundingBox:
        """From [west, south, east, north]; raises ValueError."""
        west, south, east, north = (float(number) for number in numbers)
        if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
            raise ValueError("bbox is [west, south, east, north] in degrees")
        return cls(west, south, east, north)

    def contains(self, lat: float, lon: float) -> bool:
        """Whether a position is inside."""
        if not self.south <= lat <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= lon <= self.east
        return lon >= self.west or lon <= self.east


@dataclass
class Filter:
    """What a viewer wants of what it may see."""

    devices: frozenset[str] | None = None
    topics: frozenset[str] = frozenset((LOCATION, ADDRESS))
    box: BoundingBox | None = None
    own_only: bool = False  # not what friends show, nor what administrators see


class Viewer:
    """What waits for one viewer.

    Events wait in order up to a bound; a viewer that is slower gets the newest of each device
    instead, and learns how many it did not get.
    """

    def __init__(
        self, wanted: Filter, positions: Cursor, identity: Identity, telling: Telling
    ) -> None:
        self.wanted = wanted
        #: Who watches, with the rights of now: `Viewers.rights_changed` keeps them.
        self.identity = identity
        self._telling = telling
        #: What has been taken: the id of the last event it was given.
        self.cursor: Cursor = dict(positions)
        self.skipped = 0
        #: Something waits, or `closed`.
        self.wake = asyncio.Event()
        #: The gateway stops: the connection is to be ended.
        self.closed = False
        self._ordered: list[ViewEvent] = []
        self._ordered_bytes = 0
        self._newest: dict[tuple[str, str], ViewEvent] | None = None

    def offer(self, events: Iterable[ViewEvent]) -> None:
        """Add what passes the filter."""
        if not self.wanted.topics:
            return
        wanted = self.shown(events)
        if not wanted:
            return
        if self._newest is None:
            self._ordered += wanted
            self._ordered_bytes += sum(len(event.value) for event in wanted)
            if len(self._ordered) > ORDERED_EVENTS_MAX or self._ordered_bytes > ORDERED_BYTES_MAX:
                self._newest = {}
                self._coalesce(self._take_ordered())
        else:
            self._coalesce(wanted)
        self.wake.set()

    def shown(self, events: Iterable[ViewEvent]) -> list[ViewEvent]:
        """What this viewer is shown of events that happen now."""
        return [
            shown for event in events if (shown := self._shown(event, self._telling)) is not None
        ]

    def shown_of_before(self, events: Iterable[ViewEvent], telling: Telling) -> list[ViewEvent]:
        """The same of what it has missed; `telling` is that of one catching up."""
        return [
            shown
            for event in events
            if may_look_back(self.identity, event.device)
            and (shown := self._shown(event, telling)) is not None
        ]

    def _shown(self, event: ViewEvent, telling: Telling) -> ViewEvent | None:
        wanted, identity = self.wanted, self.identity
        if event.topic not in wanted.topics:
            return None
        if wanted.devices is not None and event.device not in wanted.devices:
            return None
        owner = event.device.partition("/")[0]
        if wanted.own_only and owner != identity.user:
            return None
        sight = sight_of(identity, event.device)
        if sight is Sight.NOTHING:
            return None
        if sight is Sight.TOLD:
            told = telling.event(event)
            if told is None or told.time < (friends_since(identity, owner) or 0):
                return None
            event = told.what
        # Of what is told: a small box would else find out where somebody is who is told inexactly.
        if wanted.box is not None and not wanted.box.contains(event.lat, event.lon):
            return None
        return event

    def keep_visible(self) -> None:
        """Throw away what waits and may not be seen any more."""
        self._ordered = [each for each in self._ordered if may_see(self.identity, each.device)]
        self._ordered_bytes = sum(len(event.value) for event in self._ordered)
        for key in list(self._newest or ()):
            if self._newest is not None and not may_see(self.identity, key[1]):
                del self._newest[key]

    def _coalesce(self, events: Iterable[ViewEvent]) -> None:
        newest = self._newest
        assert newest is not None
        for event in events:
            key = (event.topic, event.device)
            if newest.pop(key, None) is not None:
                self.skipped += 1
            newest[key] = event
            if len(newest) > NEWEST_EVENTS_MAX:
                del newest[next(iter(newest))]
                self.skipped += 1

    def take(self) -> list[ViewEvent]:
        """Everything that waits, in the order of the log as far as it was kept."""
        self.wake.clear()
        if self._newest is not None:
            events, self._newest = list(self._newest.values()), None
            return events
        return self._take_ordered()

    def _take_ordered(self) -> list[ViewEvent]:
        events, self._ordered = self._ordered, []
        self._ordered_bytes = 0
        return events

    def take_skipped(self) -> int:
        """How many events were left out since the last call."""
        skipped, self.skipped = self.skipped, 0
        return skipped

    def advance(self, event: ViewEvent) -> str:
        """The id of an event that is given to the viewer now."""
        key = (event.topic, event.partition)
        if event.offset >= self.cursor.get(key, 0):
            self.cursor[key] = event.offset + 1
        return encode_cursor(self.cursor)


class TooManyViewers(Exception):
    """The bound on live viewers is reached."""


class Viewers:
    """All live viewers of this process; fed by the views."""

    def __init__(
        self,
        views: Sequence[View],
        metrics: GatewayMetrics,
        permissions: Permissions,
        telling: Telling,
        viewers_max: int = VIEWERS_MAX,
    ) -> None:
        self._views = views
        self._metrics = metrics
        self._permissions = permissions
        self._telling = telling
        self._viewers_max = viewers_max
        self._viewers: set[Viewer] = set()
        # By whose devices they may see, so that a fix costs nothing for those who may not.
        self._of_all: set[Viewer] = set()
        self._of_user: dict[str, set[Viewer]] = {}

    def __len__(self) -> int:
        return len(self._viewers)

    @property
    def watching(self) -> bool:
        """Whether there is anybody."""
        return bool(self._viewers)

    @property
    def positions(self) -> Cursor:
        """Next offsets after what viewers have been offered."""
        return {
            (view.topic, partition): offset
            for view in self._views
            for partition, offset in view.positions.items()
        }

    def on_events(self, events: list[ViewEvent]) -> None:
        """For the views' `watch`."""
        for viewer in self._of_all:
            viewer.offer(events)
        if not self._of_user:
            return
        by_user: dict[str, list[ViewEvent]] = {}
        for event in events:
            user = event.device.partition("/")[0]
            if user in self._of_user:
                by_user.setdefault(user, []).append(event)
        for user, own in by_user.items():
            for viewer in self._of_user[user]:
                viewer.offer(own)

    def add(self, wanted: Filter, identity: Identity) -> Viewer:
        """A new viewer, from now on. Raises TooManyViewers."""
        if len(self._viewers) >= self._viewers_max:
            raise TooManyViewers
        viewer = Viewer(wanted, self.positions, identity, self._telling)
        self._viewers.add(viewer)
        self._index(viewer)
        return viewer

    def _index(self, viewer: Viewer) -> None:
        users = _watched_users(viewer.identity)
        if users is None:
            self._of_all.add(viewer)
        for user in users or ():
            self._of_user.setdefault(user, set()).add(viewer)

    def _remove_from_index(self, viewer: Viewer) -> None:
        self._of_all.discard(viewer)
        for user in _watched_users(viewer.identity) or ():
            others = self._of_user.get(user)
            if others is not None:
                others.discard(viewer)
                if not others:
                    del self._of_user[user]

    def close(self) -> None:
        """End all connections of viewers, and take no more."""
        self._viewers_max = 0
        for viewer in self._viewers:
            viewer.closed = True
            viewer.wake.set()

    def rights_changed(self, users: Set[str]) -> None:
        """For Permissions: show what may be seen now, and end what rests on nothing any more."""
        for viewer in [each for each in self._viewers if each.identity.user in users]:
            try:
                identity = self._permissions.now(viewer.identity)
            except sqlite3.Error as error:
                logger.error("the rights of a viewer cannot be read: %s", error)
                identity = None
            if identity is None:
                viewer.closed = True
                viewer.wake.set()
                continue
            self._remove_from_index(viewer)
            viewer.identity = identity
            self._index(viewer)
            viewer.keep_visible()

    def remove(self, viewer: Viewer) -> None:
        """It has gone."""
        self._viewers.discard(viewer)
        self._remove_from_index(viewer)
        self._metrics.skipped += viewer.skipped


def _watched_users(identity: Identity) -> frozenset[str] | None:
    """Whose devices somebody may see; None: everybody's."""
    if identity.admin and identity.device is None:
        return None
    return frozenset((identity.user, *identity.rights.friends))
