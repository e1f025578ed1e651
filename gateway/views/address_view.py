"""The view of the newest address of every device."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from gateway.views.view import DEVICES_MAX, Record, View, ViewEvent
from waylog.history.erasures import Erasure, Erasures
from waylog.kafka.topics import ADDRESS
from waylog.malformed import MALFORMED
from waylog.messages import Address, address_time, decode_address

logger = logging.getLogger(__name__)

#: Longer numbers do not fit into snapshots and cursors.
_Time = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _AddressHead(msgspec.Struct, gc=False):
    time: _Time
    lat: float
    lon: float
    resolved: _Time = 0


_address_head = msgspec.json.Decoder(_AddressHead)


class _Waiter:
    """A callback that waits for the address of a fix."""

    __slots__ = ("callback", "time_ms", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, time_ms: int, callback: Callable[[], object]) -> None:
        self.time_ms = time_ms
        self.callback = callback


class AddressView(View):
    """The newest address of each device, with callbacks for new ones."""

    def __init__(self, *, devices_max: int = DEVICES_MAX) -> None:
        super().__init__(ADDRESS, devices_max)
        self._subscribers: list[Callable[[str, bytes], None]] = []
        #: Erasures known from tombstones, and those that others add here.
        self.erasures = Erasures()
        self._erased_before: dict[str, int] = {}
        self._on_erased: Callable[[str, int], None] | None = None
        self._waiting: dict[str, list[_Waiter]] = {}

    def latest(self, device: str) -> Address | None:
        """Return the address of the newest resolved fix."""
        value = self.newest_raw(device)
        return None if value is None else decode_address(value)

    def on_address(self, subscriber: Callable[[str, bytes], None]) -> None:
        """Call `subscriber` with a device and its address whenever a newer address arrives.

        The address is the JSON in the log.
        """
        self._subscribers.append(subscriber)

    def on_erased(self, subscriber: Callable[[str, int], None]) -> None:
        """Call `subscriber` with each erased device and the time of the erasure (ms).

        Earlier erasures are reported at once, so all views must have caught up.
        """
        for device, erased_ms in self._erased_before.items():
            subscriber(device, erased_ms)
        self._erased_before.clear()
        self._on_erased = subscriber

    def when(
        self, device: str, time_ms: int, timeout_s: float, callback: Callable[[], object]
    ) -> None:
        """Call back when the address of a fix of that time or a newer one comes, or on timeout.

        If the address is there already, the callback is called at once.
        """
        entry = self.newest.get(device)
        if entry is not None and entry[0] >= time_ms:
            callback()
            return
        waiter = _Waiter(time_ms, callback)
        self._waiting.setdefault(device, []).append(waiter)
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(timeout_s, self._late, device, waiter)

    async def wait(self, device: str, time_ms: int, timeout_s: float) -> bool:
        """Wait for the address as `when` does; return False after the timeout."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        self.when(device, time_ms, timeout_s, done)
        await future
        entry = self.newest.get(device)
        return entry is not None and entry[0] >= time_ms

    def _late(self, device: str, waiter: _Waiter) -> None:
        self._stop_waiting(device, waiter)
        waiter.callback()

    def _stop_waiting(self, device: str, waiter: _Waiter) -> None:
        waiters = self._waiting[device]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[device]

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `address`; the callback of BatchReader."""
        news = self.caught_up.is_set()
        watcher = self._watched_by()
        events: list[ViewEvent] = []
        for record in records:
            partition, offset = record.partition(), record.offset()
            assert partition is not None and offset is not None
            self.positions[partition] = offset + 1
            key, value = record.key(), record.value()
            if key is None:
                self._unreadable(record)
                continue
            try:
                device = key.decode()
                if value is None:
                    # A tombstone of the compacted topic: the device has been erased.
                    self._drop(device)
                    self._erased(device, record.timestamp()[1])
                    continue
                head = _address_head.decode(value)
            except MALFORMED:
                self._unreadable(record)
                continue
            live = address_time(head.time, head.resolved)
            if not self._take(device, live, value):
                continue
            if device in self._waiting:
                self._wake(device, live)
            if news:
                self._tell(device, value)
            if watcher is not None:
                events.append(
                    ViewEvent(ADDRESS, partition, offset, device, head.lat, head.lon, value, live)
                )
        self._counted(records)
        if watcher is not None and events:
            watcher.on_events(events)

    def _tell(self, device: str, value: bytes) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(device, value)
            except Exception:
                # The others, and what follows of the batch, are not concerned.
                logger.exception("a new address of %r could not be passed on", device)

    def on_old_records(self, records: Sequence[Record], positions: dict[int, int]) -> None:
        """Take records older than those of `on_records`; `positions` are their next offsets."""
        for record in records:
            partition, offset = record.partition(), record.offset()
            assert partition is not None and offset is not None
            positions[partition] = offset + 1
            key, value, written = record.key(), record.value(), record.timestamp()[1]
            try:
                device = key.decode() if key is not None else ""
                if value is None:
                    if device:
                        self.forget(device, written)
                        self._erased(device, written)
                    continue
                head = _address_head.decode(value)
            except MALFORMED:
                self._unreadable(record)
                continue
            live = address_time(head.time, head.resolved)
            if not device or self.erasures.covers(device, written):
                continue
            if not self._has_resolved_again(device, live, head.resolved):
                self._take(device, live, value)

    def _has_resolved_again(self, device: str, live: int, resolved: int) -> bool:
        """Tell whether a later resolution of a fix of that time is known."""
        entry = self.newest.get(device)
        return (
            entry is not None
            and entry[0] == live
            and _address_head.decode(entry[1]).resolved > resolved
        )

    def forget(self, device: str, erased_ms: int) -> None:
        """Drop the address of a device if it was resolved before the device was erased."""
        entry = self.newest.get(device)
        if entry is not None:
            try:
                newer = _address_head.decode(entry[1]).resolved > erased_ms
            except MALFORMED:
                newer = False
            if not newer:
                self._drop(device)

    def _erased(self, device: str, erased_ms: int) -> None:
        self.erasures.add(Erasure(device, erased_ms))
        if self._on_erased is None:
            self._erased_before[device] = erased_ms
        else:
            self._on_erased(device, erased_ms)

    def _wake(self, device: str, live: int) -> None:
        for waiter in list(self._waiting[device]):
            if live >= waiter.time_ms:
                self._stop_waiting(device, waiter)
                waiter.timer.cancel()
                waiter.callback()
