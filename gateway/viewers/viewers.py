"""Live viewers: what each may see, and the events queued for each; no sockets."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from gateway.friends.friend_events import FriendEventFilter
from gateway.limits.bounds import HttpLimits
from gateway.observability.metrics import GatewayMetrics
from gateway.shares.share import FRIENDS
from gateway.users.auth import Identity
from gateway.users.permissions import (
    RECHECK_S,
    Permissions,
    Visibility,
    friends_since,
    may_look_back,
    terms_of,
    visibility_of,
    watched_users,
)
from gateway.viewers.cursors import Cursor, encode_cursor, written
from gateway.viewers.live_events import Batch, Feed, LiveEvent
from gateway.views.view import ViewEvent
from waylog.bounding_box import BoundingBox
from waylog.kafka.topics import ADDRESS, LOCATION

logger = logging.getLogger(__name__)

#: Events queued for one viewer in order; beyond it only the newest of each device is kept.
ORDERED_EVENTS_MAX: Final = 10_000
#: The same limit in bytes of values, which all viewers share.
ORDERED_BYTES_MAX: Final = 4 * 1024 * 1024
#: Events examined, and approximate bytes returned, in one `take`.
STEP_EVENTS: Final = 500
STEP_BYTES: Final = 32 * 1024
VIEWERS_MAX: Final = 10_000
_NO_CALL: Final = 0
#: Seconds after which viewers are told that a friend shows less: then all workers know, and whoever
#: asks one of them anew is not told once more what there was.
_NARROWED_AFTER_S: Final = 2 * RECHECK_S


class View(Protocol):
    """The part of a view that knows its positions in the log."""

    topic: str
    positions: dict[int, int]


@dataclass
class Filter:
    """The subset of visible events that a viewer wants."""

    devices: frozenset[str] | None = None
    topics: frozenset[str] = frozenset((LOCATION, ADDRESS))
    box: BoundingBox | None = None
    own_only: bool = False  # no devices of friends, and for administrators none of other users


class Closed(Enum):
    """A reason to close a connection, with WebSocket's status code (RFC 6455, section 7.4.1)."""

    STOPS = 1001, "the gateway stops"
    REVOKED = 1008, "the rights have been revoked"
    ENDED = 1000, "the time is over"

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason


class Viewer:
    """One viewer, with the events queued for it.

    Batches are queued in order up to a limit; all viewers of a feed share the same objects. A
    viewer that is slower gets the newest event of each device instead, and the number of events
    that it missed (an upper bound: events invisible to it count, too). Rights and filters are
    applied when events are taken, with the rights of that time, so a viewer that takes nothing
    costs nothing.
    """

    def __init__(
        self,
        wanted: Filter,
        positions: Cursor,
        identity: Identity,
        feeds: Callable[[Identity], Iterable[Feed]],
        telling: FriendEventFilter | None = None,
    ) -> None:
        """`feeds` returns the feeds that somebody may watch now.

        `telling` makes what this viewer is told by other terms than those of most friends; None:
        it is told nothing by such terms.
        """
        self.wanted = wanted
        #: The viewer's identity with its current rights, updated by `Viewers.rights_changed`.
        self.identity = identity
        #: Next offsets after the missed events sent so far, for the id of the last one.
        self.cursor: Cursor = dict(positions)
        self.skipped = 0
        #: A friend shows less than before, and the viewer has not been told so.
        self.is_narrowed = False
        #: Set if something is queued, or if `closed`.
        self.wake = asyncio.Event()
        #: The number of the last event before the viewer was added.
        self.begins_after = 0
        #: The reason for which the connection is to be closed; None while it is not.
        self.closed: Closed | None = None
        self._feeds = feeds
        self._telling = telling
        self._waiting: deque[Batch] = deque()
        # Index in the first queued batch.
        self._place = 0
        self._waiting_events = 0
        self._waiting_bytes = 0
        # Number of the first event dropped from the queue (None: not behind), and events since
        # then.
        self._behind_since: int | None = None
        self._behind = 0

    def offer(self, batch: Batch) -> None:
        """Queue a batch; the cost does not depend on the number of events."""
        if not self.wanted.topics:
            return
        if self._behind_since is not None:
            self._behind += len(batch.events)
        else:
            self._waiting.append(batch)
            self._waiting_events += len(batch.events)
            self._waiting_bytes += batch.value_bytes
            if self._waiting_events > ORDERED_EVENTS_MAX or self._waiting_bytes > ORDERED_BYTES_MAX:
                self._fall_behind()
        self.wake.set()

    def _fall_behind(self) -> None:
        first, place = self._waiting[0], self._place
        self._behind_since = min(
            each.events[place if each is first else 0].number
            for each in self._waiting
            if each.call == first.call
        )
        self._behind = self._waiting_events - self._place
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._place = self._waiting_events = self._waiting_bytes = 0

    def _catch_up(self, since: int) -> None:
        """Queue the newest event of each device, in the order of the log."""
        newest = [live for feed in self._feeds(self.identity) for live in feed.newest_since(since)]
        newest.sort(key=_number)
        self.skipped += max(0, self._behind - len(newest))
        self._behind_since, self._behind = None, 0
        if newest:
            size = sum(len(live.event.value) for live in newest)
            self._waiting.append(Batch(newest, size, _NO_CALL))
            self._waiting_events, self._waiting_bytes = len(newest), size

    def take(self, events_max: int = STEP_EVENTS, bytes_max: int = STEP_BYTES) -> list[LiveEvent]:
        """Take events that the viewer may see, in the order of the log where it was kept.

        Examines at most `events_max` queued events; `wake` stays set while there are more.
        """
        if self._behind_since is not None:
            self._catch_up(self._behind_since)
        taken: list[LiveEvent] = []
        size = looked_at = 0
        while self._waiting and looked_at < events_max and size < bytes_max:
            events = self._first()
            live = events[self._place]
            looked_at += 1
            self._place += 1
            shown = self._shown(live)
            if shown is not None:
                taken.append(shown)
                size += len(shown.event.value)
            if self._place == len(events):
                batch = self._waiting.popleft()
                self._waiting_events -= len(events)
                self._waiting_bytes -= batch.value_bytes
                self._place = 0
        if not self._waiting:
            self._forget_waiting()
            if not self.closed:
                self.wake.clear()
        return taken

    def _first(self) -> list[LiveEvent]:
        """Return the first batch; batches of several users from one call are merged in order."""
        waiting = self._waiting
        first = waiting[0]
        while self._place == 0 and len(waiting) > 1 and waiting[1].call == first.call:
            other = waiting[1]
            waiting.popleft()
            first = waiting[0] = Batch(
                sorted([*first.events, *other.events], key=_number),
                first.value_bytes + other.value_bytes,
                first.call,
            )
        return first.events

    def _shown(self, live: LiveEvent) -> LiveEvent | None:
        event = live.event
        if not self._wants(event):
            return None
        identity = self.identity
        sight = visibility_of(identity, event.device)
        if sight is Visibility.NOTHING:
            return None
        if sight is Visibility.TOLD:
            owner = event.device.partition("/")[0]
            told, told_ms = live.told, live.told_ms
            terms = terms_of(identity, owner)
            if identity.share is not None or terms != FRIENDS:
                told, told_ms = (
                    (None, 0) if self._telling is None else live.told_by(self._telling, terms)
                )
            if told is None or told_ms < (friends_since(identity, owner) or 0):
                return None
            live = told
        return live if self._is_inside(live.event) else None

    def shown_of_before(
        self, events: Iterable[ViewEvent], telling: FriendEventFilter
    ) -> list[ViewEvent]:
        """Return the missed events that this viewer may see; `telling` is of this catch-up."""
        shown: list[ViewEvent] = []
        identity = self.identity
        for event in events:
            if not self._wants(event) or not may_look_back(identity, event.device):
                continue
            # A friendship may end by itself between two looks: only who sees all gets it as it is.
            if visibility_of(identity, event.device) is not Visibility.EVERYTHING:
                owner = event.device.partition("/")[0]
                told = telling.event(event, terms_of(identity, owner))
                if told is None or told.time < (friends_since(identity, owner) or 0):
                    continue
                event = told.what  # noqa: PLW2901
            if self._is_inside(event):
                shown.append(event)
        return shown

    def _wants(self, event: ViewEvent) -> bool:
        wanted = self.wanted
        if event.topic not in wanted.topics:
            return False
        if wanted.devices is not None and event.device not in wanted.devices:
            return False
        return not wanted.own_only or event.device.partition("/")[0] == self.identity.user

    def _is_inside(self, event: ViewEvent) -> bool:
        # Applied to the filtered position: a small box could otherwise reveal the exact one.
        box = self.wanted.box
        return box is None or box.contains(event.lat, event.lon)

    def end(self) -> None:
        """Close the viewer, because its time is over."""
        self.closed = Closed.ENDED
        self.wake.set()

    def narrow(self) -> None:
        """Have the viewer told that a friend shows less than before."""
        self.is_narrowed = True
        self.wake.set()

    def take_narrowed(self) -> bool:
        """Return whether a friend shows less than at the last call."""
        is_narrowed, self.is_narrowed = self.is_narrowed, False
        return is_narrowed

    def take_skipped(self) -> int:
        """Return the number of events left out since the last call."""
        skipped, self.skipped = self.skipped, 0
        return skipped

    def advance(self, event: ViewEvent) -> str:
        """Return the encoded next offsets after a missed event that is sent now."""
        key = (event.topic, event.partition)
        if event.offset >= self.cursor.get(key, 0):
            self.cursor[key] = event.offset + 1
        return encode_cursor(self.cursor)


def _number(live: LiveEvent) -> int:
    return live.number


class TooManyViewers(Exception):
    """The limit on live viewers is reached; the text says which limit."""


class Viewers:
    """All live viewers of this process; fed by the views.

    `of_user_max` and `of_address_max` limit the viewers of one user, and from one address.
    """

    def __init__(
        self,
        views: Sequence[View],
        metrics: GatewayMetrics,
        permissions: Permissions,
        telling: FriendEventFilter,
        viewers_max: int = VIEWERS_MAX,
        of_user_max: int = HttpLimits.viewers_per_user_max,
        of_address_max: int = HttpLimits.viewers_per_address_max,
    ) -> None:
        self._views = views
        self._metrics = metrics
        self._permissions = permissions
        self._telling = telling
        self._viewers_max = viewers_max
        self._of_user_max = of_user_max
        self._of_address_max = of_address_max
        #: Viewers with the parties that they count for.
        self._viewers: dict[Viewer, tuple[str, ...]] = {}
        # Those that want events at all; who only looks at the map by area does not.
        self._listening: set[Viewer] = set()
        self._counts: Counter[str] = Counter()
        # Of each share, by its hash: one for all its viewers, since whoever came anew would be told
        # of a moment at home that the others are not.
        self._tellings: OrderedDict[str, FriendEventFilter] = OrderedDict()
        # By the users whose devices they may see, so that a fix costs nothing for other viewers.
        self._of_all: set[Viewer] = set()
        self._of_user: dict[str, set[Viewer]] = {}
        self._feed_of_all = Feed()
        self._feeds: dict[str, Feed] = {}
        # The stream of all events: the number of the last one, and the encoded next offsets after
        # it.
        self._number = 0
        self._calls = 0
        self._cursor: dict[tuple[str, int], str] = {}

    def __len__(self) -> int:
        return len(self._viewers)

    @property
    def watching(self) -> bool:
        """Tell whether any viewer wants events."""
        return bool(self._listening)

    @property
    def positions(self) -> Cursor:
        """Return the next offsets after the events that viewers have been offered."""
        return {
            (view.topic, partition): offset
            for view in self._views
            for partition, offset in view.positions.items()
        }

    def on_events(self, events: list[ViewEvent]) -> None:
        """Queue new events for viewers; the callback of the views' `watch`."""
        self._calls += 1
        of_user: dict[str, list[LiveEvent]] = {}
        of_all: list[LiveEvent] = []
        cursor = self._cursor
        for event in events:
            cursor[event.topic, event.partition] = written(
                event.topic, event.partition, event.offset + 1
            )
            user = event.device.partition("/")[0]
            feed = self._feeds.get(user)
            if feed is None and not self._of_all:
                continue
            self._number += 1
            live = LiveEvent(event, self._number, ".".join(cursor.values()))
            if self._of_all:
                of_all.append(live)
                self._feed_of_all.add(live)
            if feed is not None:
                if feed.friends:
                    self._tell(live)
                feed.add(live)
                of_user.setdefault(user, []).append(live)
        self._offer(self._of_all, of_all)
        for user, own in of_user.items():
            self._offer(self._of_user[user], own)

    def _offer(self, viewers: Iterable[Viewer], events: list[LiveEvent]) -> None:
        if events:
            batch = Batch(events, sum(len(live.event.value) for live in events), self._calls)
            for viewer in viewers:
                viewer.offer(batch)

    def _tell(self, live: LiveEvent) -> None:
        told = self._telling.event(live.event)
        if told is not None:
            live.told = LiveEvent(told.what, live.number, live.cursor)
            live.told_ms = told.time

    async def tell_withheld(self) -> None:
        """Wait until homes are loaded, then show friends the newest event of each device.

        Only events that were withheld before are sent.
        """
        await self._telling.filter.wait_until_ready()
        for user, feed in list(self._feeds.items()):
            for number, live in enumerate(feed.untold() if feed.friends else (), 1):
                if not number % STEP_EVENTS:
                    await asyncio.sleep(0)
                if self._feeds.get(user) is feed and feed.has(live):
                    self._tell_late(live, user, feed)
            await asyncio.sleep(0)

    def _tell_late(self, untold: LiveEvent, user: str, feed: Feed) -> None:
        self._number += 1
        live = LiveEvent(untold.event, self._number, ".".join(self._cursor.values()))
        self._tell(live)
        if live.told is None:
            return
        feed.add(live)
        self._calls += 1
        batch = Batch([live], len(live.event.value), self._calls)
        for viewer in self._of_user[user]:
            if viewer.identity.user != user and viewer.begins_after < untold.number:
                viewer.offer(batch)

    def add(self, wanted: Filter, identity: Identity, address: str | None = None) -> Viewer:
        """Add a viewer of events from now on. Raises TooManyViewers.

        `address` is the party of the client, if it counts against the limit per address.
        """
        parties = [f"user {identity.user}"] + ([f"address {address}"] if address else [])
        if len(self._viewers) >= self._viewers_max:
            raise TooManyViewers("too many live viewers")
        if self._counts[parties[0]] >= self._of_user_max:
            raise TooManyViewers(f"{self._of_user_max} live viewers of this user are open already")
        if address and self._counts[parties[1]] >= self._of_address_max:
            raise TooManyViewers(
                f"{self._of_address_max} live viewers from your address are open already"
            )
        viewer = Viewer(
            wanted, self.positions, identity, self._feeds_of, self._telling_of(identity)
        )
        viewer.begins_after = self._number
        self._viewers[viewer] = tuple(parties)
        self._counts.update(parties)
        self._begin(viewer, watched_users(identity))
        self.wanted_changed(viewer)
        return viewer

    def _telling_of(self, identity: Identity) -> FriendEventFilter:
        share = identity.share
        if share is None:
            return self._telling
        telling = self._tellings.get(share.hash)
        if telling is None:
            telling = FriendEventFilter(self._telling.filter)
            self._tellings[share.hash] = telling
            if len(self._tellings) > VIEWERS_MAX:
                self._tellings.popitem(last=False)
        else:
            self._tellings.move_to_end(share.hash)
        return telling

    def wanted_changed(self, viewer: Viewer) -> None:
        """Note that a viewer wants other events than before; without any it costs nothing."""
        if not viewer.wanted.topics:
            self._listening.discard(viewer)
            return
        if not self._listening:
            # Without listeners the positions have not been followed.
            self._cursor = {key: written(*key, at) for key, at in self.positions.items()}
        self._listening.add(viewer)

    def _feeds_of(self, identity: Identity) -> list[Feed]:
        users = watched_users(identity)
        if users is None:
            return [self._feed_of_all]
        return [self._feeds[user] for user in users]

    def _begin(self, viewer: Viewer, users: Iterable[str] | None) -> None:
        if users is None:
            self._of_all.add(viewer)
        for user in users or ():
            self._of_user.setdefault(user, set()).add(viewer)
            feed = self._feeds.setdefault(user, Feed())
            feed.friends += user != viewer.identity.user

    def _end(self, viewer: Viewer, users: Iterable[str] | None) -> None:
        if users is None:
            self._of_all.discard(viewer)
            if not self._of_all:
                self._feed_of_all = Feed()
        for user in users or ():
            others = self._of_user[user]
            others.discard(viewer)
            self._feeds[user].friends -= user != viewer.identity.user
            if not others:
                del self._of_user[user], self._feeds[user]

    def close(self) -> None:
        """Close all viewers, and accept no more."""
        self._viewers_max = 0
        for viewer in self._viewers:
            viewer.closed = Closed.STOPS
            viewer.wake.set()

    def rights_changed(self, users: Set[str]) -> None:
        """Apply changed rights to viewers, and close those without any; for Permissions."""
        for viewer in [each for each in self._viewers if each.identity.account in users]:
            try:
                identity = self._permissions.now(viewer.identity)
            except sqlite3.Error as error:
                logger.error("the rights of a viewer cannot be read: %s", error)
                identity = None
            if identity is None:
                viewer.closed = Closed.REVOKED
                viewer.wake.set()
                continue
            before, after = watched_users(viewer.identity), watched_users(identity)
            if after is not None and identity.rights.narrows(viewer.identity.rights):
                asyncio.get_running_loop().call_later(_NARROWED_AFTER_S, viewer.narrow)
            viewer.identity = identity
            if before != after:
                # A feed that stays watched is kept: its events may not have been sent to friends
                # yet.
                self._begin(viewer, None if after is None else after - (before or frozenset()))
                self._end(viewer, None if before is None else before - (after or frozenset()))

    def remove(self, viewer: Viewer) -> None:
        """Remove a viewer whose connection has ended."""
        parties = self._viewers.pop(viewer, None)
        if parties is None:
            return
        for party in parties:
            self._counts[party] -= 1
            if not self._counts[party]:
                del self._counts[party]
        self._listening.discard(viewer)
        self._end(viewer, watched_users(viewer.identity))
        self._metrics.skipped += viewer.skipped
