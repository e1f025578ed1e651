"""Keeps how far each forwarding is in each partition, and what of it waits. Sans-IO.

A forwarding is *live* in a partition as long as it keeps up: it takes the records that the group
reads, and the group's offset does not pass what is not forwarded yet. One that does not keep up
falls *behind*: the log gets its own offset, the group goes on without it, and it is read for again
from there (`next_behind`, `take_behind`) until it has reached the group, and is live again.

So nothing is lost whenever a process ends: what the log says of a forwarding is never further than
what is forwarded. What it says to be live is not behind the group's offset (`to_store`). Progress
and the group's offsets become valid in the log together, and only while nobody else has the
partitions (consumers.forwarding.progress_writer).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from consumers.connect.data.records import SinkRecord
from consumers.forwarding.route import Entry, Route
from waylog.forwarding.definition import Forwarding, Progress

#: Bytes that may wait of all forwardings together.
BYTES_MAX: Final = 64 * 1024 * 1024
#: Seconds for which what waits of a forwarding may hold the group's offset back.
PATIENCE_S: Final = 30.0
#: Seconds between two records of progress of a forwarding that is behind, and of a live one that
#: has only sent further records.
_BEHIND_STORE_S: Final = 5.0
_LIVE_STORE_S: Final = 60.0
#: Seconds from one record to the next for what its owner has to know, as far as it changes.
_ERROR_STORE_S: Final = 2.0
_LOSS_STORE_S: Final = 5.0

RouteKey = tuple[str, str]  # user, id


class Arrived(NamedTuple):
    """A record of a user who has forwardings."""

    user: str
    device: str  # without the user
    stored_ms: int  # when the gateway stored it, ms since 1970
    record: SinkRecord


class ToStore(NamedTuple):
    """Progress that the log is to get."""

    route: Route
    entry: Entry
    progress: Progress


class Ledger:
    """All forwardings, in the partitions of this process."""

    def __init__(self) -> None:
        self._routes: Final[dict[RouteKey, Route]] = {}
        self._by_user: Final[dict[str, dict[str, Route]]] = {}
        #: What the group has read to, and the offset that was committed last, by partition.
        self._positions: Final[dict[int, int]] = {}
        self._committed: Final[dict[int, int]] = {}
        #: By partition: the entries that are behind, the one that had its turn last at the end.
        self._behind: Final[dict[int, dict[Entry, Route]]] = {}
        self.waiting_bytes = 0

    # ---- forwardings and partitions ----

    def __len__(self) -> int:
        return len(self._routes)

    def has_user(self, user: str) -> bool:
        """Tell whether a user has forwardings; may be asked in any thread."""
        return user in self._by_user

    def routes(self) -> Iterable[Route]:
        """Return all forwardings."""
        return self._routes.values()

    def routes_of(self, user: str) -> Iterable[Route]:
        """Return the forwardings of a user."""
        return self._by_user.get(user, {}).values()

    def route(self, key: RouteKey) -> Route | None:
        """Return a forwarding."""
        return self._routes.get(key)

    def put(self, key: RouteKey, forwarding: Forwarding | None) -> Route | None:
        """Take a new or changed forwarding; None removes it. Return it."""
        route = self._routes.get(key)
        if forwarding is None:
            if route is not None:
                self._remove(key, route)
            return None
        if route is None:
            route = self._routes[key] = Route(*key, forwarding)
            self._by_user.setdefault(key[0], {})[key[1]] = route
            for partition in self._positions:
                entry = Entry(partition, None, None)
                entry.settled = forwarding.settled
                self._enter(route, entry)
            return route
        skips = forwarding.since > route.forwarding.since
        if forwarding.settled != route.forwarding.settled:
            self._settle(route, forwarding)
        route.change(forwarding)
        for entry in route.entries.values():
            if skips and not entry.is_live:
                self._drop_waiting(route, entry)
                entry.offset = None
            elif route.is_paused:
                self._stop(route, entry)
        return route

    def _settle(self, route: Route, forwarding: Forwarding) -> None:
        """Take note from where on all is sent as a changed forwarding has it."""
        for entry in route.entries.values():
            group_position = self._positions[entry.partition]
            begin = entry.position(group_position) or 0
            if route.is_in_flight:
                begin = max(begin, entry.tried)
            if forwarding.devices != route.forwarding.devices:
                # What was read was left out if it is of another device.
                begin = max(begin, entry.read_to(group_position))
            entry.settled, entry.settled_from = forwarding.settled, begin

    def pause(self, route: Route, *, is_paused: bool) -> None:
        """Have an administrator's pause begin or end, whatever the owner has paused."""
        route.is_paused_by_administrator = is_paused
        if is_paused:
            for entry in route.entries.values():
                self._stop(route, entry)

    def _stop(self, route: Route, entry: Entry) -> None:
        """Have an entry that is paused be read for again later, from what is not forwarded."""
        self._give_up_waiting(route, entry)
        if entry.is_live:
            self._fall_behind(route, entry)

    def _remove(self, key: RouteKey, route: Route) -> None:
        del self._routes[key]
        others = self._by_user[key[0]]
        del others[key[1]]
        if not others:
            del self._by_user[key[0]]
        for partition in list(route.entries):
            self._leave(route, partition)

    def assign(
        self, partition: int, position: int, first: int, end: int,
        progress: Mapping[RouteKey, Progress], committed: int | None = None,
    ) -> None:  # fmt: skip
        """Take a partition, which the group reads from `position` on.

        `first` and `end` are the offsets that the log has; `progress` is what it says of the
        forwardings in this partition. `committed` is where the group was, if that is known, which
        may be before what the log has.
        """
        self._positions[partition] = position
        self._committed[partition] = position
        self._behind[partition] = {}
        for key, route in self._routes.items():
            stored = progress.get(key)
            entry = Entry(partition, None if stored is None else stored.offset, stored)
            if stored is not None:
                route.restore(stored)
                if stored.offset > end:
                    # The topic is another one than it was.
                    entry.offset, entry.is_live = first, False
                    entry.gaps, entry.gaps_from = (), first
                elif entry.is_live:
                    entry.offset = position
                    if committed is None:
                        if stored.offset < first:
                            entry.gaps_from = first
                    elif (read_to := max(stored.offset, committed)) < first:
                        entry.missed += first - read_to
                        entry.miss(read_to, first)
                if stored.settled not in (None, route.forwarding.settled):
                    entry.settled = route.forwarding.settled
                    entry.settled_from = entry.offset or 0
            else:
                entry.settled = route.forwarding.settled
            self._enter(route, entry)

    def revoke(self, partition: int) -> None:
        """Forget a partition, which another process has now."""
        for route in self._routes.values():
            self._leave(route, partition)
        for kept in (self._positions, self._committed, self._behind):
            kept.pop(partition, None)

    def _enter(self, route: Route, entry: Entry) -> None:
        route.entries[entry.partition] = entry
        if entry.is_live and route.is_paused:
            self._fall_behind(route, entry)
        elif not entry.is_live:
            self._behind[entry.partition][entry] = route

    def _leave(self, route: Route, partition: int) -> None:
        entry = route.entries.pop(partition, None)
        if entry is not None:
            self._drop_waiting(route, entry)
            self._behind[partition].pop(entry, None)

    # ---- live ----

    def position(self, partition: int) -> int | None:
        """Return what the group has read to, None for a partition of others."""
        return self._positions.get(partition)

    def take_live(
        self, partition: int, arrived: Sequence[Arrived], end: int, now: float
    ) -> set[Route]:
        """Take records that the group has read up to `end`; return whose they are."""
        touched: set[Route] = set()
        for each in arrived:
            offset = each.record.offset
            for route in self._by_user.get(each.user, {}).values():
                entry = route.entries.get(partition)
                if entry is None or not entry.is_live or offset < (entry.offset or 0):
                    continue
                if not route.wants(each.device, each.stored_ms):
                    continue
                if route.is_full or self.waiting_bytes >= BYTES_MAX:
                    self._fall_behind(route, entry, offset)
                    continue
                self.waiting_bytes += route.add(entry, each.record, now)
                touched.add(route)
        self._positions[partition] = end
        return touched

    def _fall_behind(self, route: Route, entry: Entry, offset: int | None = None) -> None:
        """Have an entry be read for again: from `offset`, else from what is not forwarded."""
        position = entry.position(self._positions[entry.partition])
        entry.hold = position if offset is None or entry.waiting else offset
        entry.offset = position if offset is None else offset
        entry.is_live = False
        self._behind[entry.partition][entry] = route

    def give_up_waiting(self, now: float, patience_s: float = PATIENCE_S) -> None:
        """Let those fall behind of which something waits for too long, and forget what waits."""
        for route in self._routes.values():
            if not route.waiting_count or route.is_in_flight:
                continue
            if now - route.waited_since < patience_s:
                continue
            for entry in route.entries.values():
                if entry.waiting:
                    self._give_up_waiting(route, entry)

    def _give_up_waiting(self, route: Route, entry: Entry) -> None:
        if not entry.waiting:
            return
        first = next(iter(entry.waiting))
        if entry.is_live:
            self._fall_behind(route, entry)
        self._drop_waiting(route, entry)
        entry.offset = first

    def _drop_waiting(self, route: Route, entry: Entry) -> None:
        for offset in list(entry.waiting):
            self.waiting_bytes -= route.remove(entry, offset)

    # ---- behind ----

    def unplaced(self) -> Iterator[tuple[Route, Entry]]:
        """Yield the entries whose first offset has to be looked up, by `forwarding.since`."""
        for entries in self._behind.values():
            for entry, route in entries.items():
                if entry.offset is None:
                    yield route, entry

    def place(self, entry: Entry, offset: int, first: int) -> None:
        """Have an entry begin at an offset; the log has nothing before `first`."""
        if entry.offset is None:
            entry.offset = offset
            if first > 0 and offset <= first:
                # What was stored since then and before may have been deleted already.
                entry.gaps = ((0, first),)

    def eligible(self, partition: int) -> Iterator[tuple[Route, Entry]]:
        """Yield what may be read for again, the one first whose turn was longest ago."""
        if self.waiting_bytes >= BYTES_MAX // 2:
            return
        for entry, route in self._behind.get(partition, {}).items():
            if entry.offset is not None and not route.is_paused and route.has_room:
                yield route, entry

    def had_turn(self, entry: Entry) -> None:
        """Let the others of the partition be read for first."""
        entries = self._behind.get(entry.partition, {})
        if entry in entries:
            entries[entry] = entries.pop(entry)

    def take_behind(
        self, partition: int, start: int, end: int, arrived: Sequence[Arrived],
        chosen: Sequence[tuple[Route, Entry]], now: float,
    ) -> set[Route]:  # fmt: skip
        """Take records that were read again, all that there are from `start` up to `end`.

        They are for those of `chosen` that are in this range. Return whose they are.
        """
        touched: set[Route] = set()
        by_user: dict[str, list[tuple[Route, Entry]]] = {}
        for route, entry in chosen:
            is_here = route.entries.get(partition) is entry and not entry.is_live
            if is_here and entry.offset is not None and start <= entry.offset <= end:
                by_user.setdefault(route.user, []).append((route, entry))
        full: set[Entry] = set()
        for each in arrived:
            offset = each.record.offset
            for route, entry in by_user.get(each.user, ()):
                if entry in full or entry.offset is None or offset < entry.offset:
                    continue
                if not route.wants(each.device, each.stored_ms):
                    continue
                if route.is_full:
                    full.add(entry)
                    entry.offset = offset
                    continue
                self.waiting_bytes += route.add(entry, each.record, now)
                touched.add(route)
        position = self._positions.get(partition)
        for route, entry in (pair for pairs in by_user.values() for pair in pairs):
            if entry in full or position is None:
                continue
            entry.offset = max(entry.offset or 0, end)
            if entry.offset >= position and not route.is_paused:
                entry.is_live, entry.hold = True, None
                self._behind[partition].pop(entry, None)
        return touched

    def skip_deleted(self, partition: int, start: int, first: int) -> None:
        """Go on behind records that retention has deleted, from `start` up to `first`."""
        for entry in self._behind.get(partition, {}):
            if entry.offset is not None and start <= entry.offset < first:
                entry.missed += first - entry.offset
                entry.miss(entry.offset, first)
                entry.offset = first

    # ---- what was forwarded ----

    def done(self, route: Route, records: Iterable[SinkRecord], now: float) -> None:
        """Take note of records that are forwarded, or that the server will never take."""
        for record in records:
            entry = route.entries.get(record.original_partition or 0)
            if entry is None:
                continue
            size = route.remove(entry, record.offset)
            self.waiting_bytes -= size
            if size:
                route.waited_since = now
                entry.forwarded = max(entry.forwarded or 0, record.timestamp or 0)

    def refused(self, route: Route, record: SinkRecord, reason: str) -> None:
        """Take note that the server will never take a record, which `done` has been told."""
        entry = route.entries.get(record.original_partition or 0)
        if entry is not None:
            # With its partition it goes to another process, which counts on.
            entry.refused += 1
            entry.refusal = reason

    # ---- what the log is told ----

    def commits(self) -> dict[int, int]:
        """Return the offsets that the group may commit; they count as committed."""
        offsets = dict(self._positions)
        for route in self._routes.values():
            for partition, entry in route.entries.items():
                if entry.hold is not None:
                    offsets[partition] = min(offsets[partition], entry.hold)
                if entry.is_live and entry.waiting:
                    offsets[partition] = min(offsets[partition], next(iter(entry.waiting)))
        for partition, offset in offsets.items():
            # It never goes back: what is live again has been read up to there.
            offsets[partition] = max(offset, self._committed[partition])
        self._committed.update(offsets)
        return offsets

    def to_store(self, now: float, leaving: Collection[int] = ()) -> list[ToStore]:
        """Return progress that is due; all that the log does not have in partitions that leave.

        It goes to the log together with the last `commits`, or not at all if another process has
        one of the partitions meanwhile.
        """
        found: list[ToStore] = []
        for route in self._routes.values():
            for entry in route.entries.values():
                if _is_told(route, entry):
                    continue
                progress = self._progress(route, entry)
                if progress is None or progress == entry.stored:
                    continue
                if entry.partition in leaving or self._is_due(entry, progress, now):
                    found.append(ToStore(route, entry, progress))
        return found

    def _progress(self, route: Route, entry: Entry) -> Progress | None:
        position = entry.position(self._positions[entry.partition])
        if position is None:
            return None
        return Progress(
            offset=position,
            # What waits could be older than what the group has committed before it was live again.
            live=entry.is_live and position >= self._committed[entry.partition],
            forwarded=entry.forwarded,
            error=route.error,
            error_time=route.error_time,
            refused=entry.refused,
            refusal=entry.refusal,
            missed=entry.missed,
            gaps=entry.gaps,
            gaps_from=entry.gaps_from,
            settled=entry.settled,
            settled_from=entry.settled_from,
        )

    def _is_due(self, entry: Entry, progress: Progress, now: float) -> bool:
        stored = entry.stored
        if stored is None or entry.hold is not None or stored.live != progress.live:
            return True
        if stored.settled != progress.settled:
            return True
        since = now - entry.stored_at
        if stored.error != progress.error:
            return since >= _ERROR_STORE_S
        if stored.forwarded is None and progress.forwarded is not None:
            return True
        if _losses(stored) != _losses(progress):
            return since >= _LOSS_STORE_S
        if progress.live and stored.forwarded == progress.forwarded:
            return False
        return since >= (_LIVE_STORE_S if progress.live else _BEHIND_STORE_S)

    def stored(self, written: ToStore, now: float) -> None:
        """Take note that the log has some progress."""
        entry, progress = written.entry, written.progress
        entry.stored, entry.stored_at = progress, now
        if not progress.live and not entry.is_live:
            entry.hold = None

    def not_stored(self, written: ToStore) -> None:
        """Take note that the log may have it or not; it is written again."""
        written.entry.stored = None


def _is_told(route: Route, entry: Entry) -> bool:
    """Tell whether the log has all of a live entry but for its offset, which is the group's."""
    stored = entry.stored
    return (
        stored is not None
        and stored.live
        and entry.is_live
        and entry.hold is None
        and stored.forwarded == entry.forwarded
        and stored.error == route.error
        and _losses(stored) == _losses(entry)
        and stored.settled == entry.settled
    )


def _losses(told: Progress | Entry) -> tuple[object, ...]:
    return (told.refused, told.missed, told.gaps, told.gaps_from)
