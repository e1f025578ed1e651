"""The view of the newest fix and the recent track of every device."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.views.fix_view import take_fixes
from gateway.views.live_positions import LivePositions
from gateway.views.track_store import TrackStore, pack_point
from gateway.views.view import DEVICES_MAX, Record, View, ViewEvent
from waylog.history.erasures import Erasures
from waylog.kafka.topics import LOCATION
from waylog.malformed import MALFORMED
from waylog.messages import Address, Fix, address_time, decode_fix, live_time


class _FixHead(msgspec.Struct, gc=False):
    id: str
    time: int
    received: int
    lat: float
    lon: float
    altitude: float | None = None
    accuracy: float | None = None
    speed: float | None = None
    course: float | None = None


_fix_head = msgspec.json.Decoder(_FixHead)


class LocationView(View):
    """The newest fix and recent track of each device, and the ids of fixes in the log."""

    def __init__(
        self,
        known_fixes: KnownFixes | None = None,
        *,
        tracks: TrackStore | None = None,
        devices_max: int = DEVICES_MAX,
    ) -> None:
        super().__init__(LOCATION, devices_max)
        self.known_fixes = KnownFixes() if known_fixes is None else known_fixes
        self.tracks = TrackStore() if tracks is None else tracks
        #: Takes the newest position of each device, while somebody looks at the map by area.
        self.followed: LivePositions | None = None

    def latest(self, device: str) -> Fix | None:
        """Return the fix with the latest time (of arrival, if a fix's own time is absurd)."""
        value = self.newest_raw(device)
        return None if value is None else decode_fix(value)

    def track_pieces(self, device: str) -> Iterator[bytes]:
        """Yield the part of a device's track that is in memory, as `TrackStore.pieces` does."""
        return self.tracks.pieces(device)

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `location`; the callback of BatchReader."""
        watcher = self._watched_by()
        events: list[ViewEvent] | None = None if watcher is None else []
        take_fixes(self, records, self.known_fixes, events, _location_event, self.positions)
        self._counted(records)
        if watcher is not None and events:
            watcher.on_events(events)

    def on_old_records(
        self,
        records: Sequence[Record],
        erasures: Erasures,
        positions: dict[int, int],
        *,
        recent: bool,
    ) -> None:
        """Take records older than those of `on_records`; `positions` are their next offsets.

        Only `recent` records become part of tracks.
        """
        for record in records:
            partition, offset = record.partition(), record.offset()
            assert partition is not None and offset is not None
            positions[partition] = offset + 1
        take_fixes(
            self,
            _unerased(records, erasures),
            self.known_fixes,
            None,
            _location_event,
            {},
            recent=recent,
        )

    def take_record(
        self, record: Record, events: list[ViewEvent] | None, *, recent: bool = True
    ) -> None:
        """Take one record that is not in the form that the gateway writes."""
        partition, offset = record.partition(), record.offset()
        assert partition is not None and offset is not None
        key, value = record.key(), record.value()
        try:
            if key is None or value is None:
                raise ValueError("no key or no value")
            device = key.decode()
            head = _fix_head.decode(value)
            live = live_time(head.time, head.received)
            point = pack_point(
                *(live, head.lat, head.lon),
                *(head.altitude, head.accuracy, head.speed, head.course),
            )
            if self.known_fixes.times is not None:
                self.known_fixes.times.add(device_key(device), head.time, head.received)
        except (*MALFORMED, OverflowError, struct.error):
            self._unreadable(record)
            return
        if recent:
            self.known_fixes.add(fix_key(device, head.id))
        else:
            self.known_fixes.add_old(fix_key(device, head.id))
        if recent:
            self.tracks.append_packed(device, point)
        if self._take(device, live, value) and self.followed is not None:
            self.followed.put(
                *(device, live, head.received, head.lat, head.lon),
                *(head.speed, head.course, head.accuracy),
            )
        if events is not None:
            events.append(
                _location_event(partition, offset, device, head.lat, head.lon, value, live)
            )

    def forget(self, device: str, erased_ms: int) -> None:
        """Drop the data of a device received before it was erased."""
        value = self.newest_raw(device)
        if value is None:
            self.tracks.forget(device)
            return
        try:
            newer = _fix_head.decode(value).received > erased_ms
        except MALFORMED:
            newer = False
        if not newer:
            self._drop(device)
        # The time of arrival of points is not stored, so all of them go.
        self.tracks.forget(device)

    def follow_newest(self, device: str) -> None:
        """Put the newest known position of a device among those that are followed."""
        entry, followed = self.newest.get(device), self.followed
        if entry is None or followed is None:
            return
        live, value = entry
        if not followed.put_record(device, live, value):
            with suppress(*MALFORMED, OverflowError):
                head = _fix_head.decode(value)
                followed.put(
                    *(device, live, head.received, head.lat, head.lon),
                    *(head.speed, head.course, head.accuracy),
                )

    def _drop(self, device: str) -> None:
        super()._drop(device)
        self.tracks.forget(device)
        if self.followed is not None:
            self.followed.remove(device)


def _unerased(records: Sequence[Record], erasures: Erasures) -> Sequence[Record]:
    if not len(erasures):
        return records
    return [
        each
        for each in records
        if not erasures.covers((each.key() or b"").decode("utf-8", "replace"), each.timestamp()[1])
    ]


def _location_event(
    partition: int, offset: int, device: str, lat: float, lon: float, value: bytes, live: int
) -> ViewEvent:
    return ViewEvent(LOCATION, partition, offset, device, lat, lon, value, live)


class LatestFixes(Protocol):
    """The newest fix of each device."""

    def latest(self, device: str) -> Fix | None: ...


def newest_fix(locations: LatestFixes, device: str, address: Address | None) -> Fix | None:
    """Return the newest fix; None if the address belongs to a newer fix that is not known."""
    fix = locations.latest(device)
    if fix is None or address is None or address.fix_id == fix.id:
        return fix
    is_newer = address_time(address.time, address.resolved) > live_time(fix.time, fix.received)
    return None if is_newer else fix
