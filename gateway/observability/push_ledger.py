"""Counts what is sent to devices, and tells it to topic `push` for receipts (waylog.audit.pushes).

A count costs a look into a dictionary. What is not told yet when the process is killed is lost, so
the counts are those that are certain. How long it is counted before it is told depends on the
number of devices: with few of them a receipt is fresh, with many a day stays small.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from waylog.audit.pushes import CHANNELS, push_records
from waylog.kafka.topics import ADDRESS, PUSH

if TYPE_CHECKING:
    from gateway.viewers.live_events import LiveEvent

#: Seconds of a stretch, and up to how many devices it holds: a day has at most 60 MB of records up
#: to twenty thousand devices. All divide a quarter of an hour.
_STRETCHES: Final = ((15, 330), (60, 1_300), (300, 6_500))
_LONGEST_S: Final = 900
#: Devices that are counted at once; others wait for the next stretch.
_DEVICES_MAX: Final = 500_000
#: Devices that are written without letting others work.
_AT_ONCE: Final = 2_000

MQTT, CARD, HTTP, WEBSOCKET, SSE = range(len(CHANNELS))


class Telemetry(Protocol):
    """What takes records, and drops them while the log is away."""

    def record(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        """Queue one record."""


class PushLedger:
    """The pushes of a process, on its event loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is that of the event loop, `wall` tells seconds since 1970 UTC."""
        self._clock: Final = clock
        self._wall: Final = wall
        self._since = wall()
        #: The greatest number of devices in the stretch before this one.
        self._devices = 0
        #: By channel and device: how many, and the clock at the last one.
        self._pushes: Final[list[dict[str, list[float]]]] = [{} for _ in CHANNELS]
        self._nobodys: Final[list[float]] = [0.0, 0.0]

    def counts(self, channel: int) -> dict[str, list[float]]:
        """Return the counts of the present stretch, for whoever counts without a call.

        It stays the same object, and loses its devices at the end of each stretch; a device that it
        lacks is added by `begin`.
        """
        return self._pushes[channel]

    def begin(self, channel: int, device: str, *, is_owners: bool) -> list[float]:
        """Return the count of a device that has none yet: the number, and the clock's last time.

        `is_owners` False: for as long as the stretch lasts nothing of it counts.
        """
        devices = self._pushes[channel]
        if len(devices) >= _DEVICES_MAX:
            return self._nobodys
        found = devices[device] = [0, 0.0] if is_owners else self._nobodys
        return found

    def pushed(self, channel: int, device: str) -> None:
        """Count an address that was handed to a channel for a client of its owner."""
        found = self._pushes[channel].get(device) or self.begin(channel, device, is_owners=True)
        found[0] += 1
        found[1] = self._clock()

    def shown(self, channel: int, events: Iterable[LiveEvent], user: str) -> None:
        """Count the addresses of a user's own devices among events that a viewer was sent."""
        for live in events:
            event = live.event
            if event.topic == ADDRESS and event.device.partition("/")[0] == user:
                self.pushed(channel, event.device)

    def untold(self, device: str) -> Iterator[tuple[int, int, int]]:
        """Yield channel, count and last time of what stands in no record yet."""
        for channel, devices in enumerate(self._pushes):
            found = devices.get(device)
            if found is not None and found is not self._nobodys:
                yield channel, int(found[0]), _ms(self._wall() - self._clock() + found[1])

    async def run(self, telemetry: Telemetry) -> None:
        """Tell at the end of each stretch; the last one when this is cancelled."""
        records: Iterator[tuple[bytes, bytes]] = iter(())
        try:
            while True:
                await asyncio.sleep(self.seconds_left())
                records = self._taken()
                for key, value in records:
                    telemetry.record(PUSH, value, key)
                    await asyncio.sleep(0)
        finally:
            for key, value in chain(records, self._taken()):
                telemetry.record(PUSH, value, key)

    def seconds_left(self) -> float:
        """Return the seconds until the present stretch ends."""
        length_s = next(
            (each for each, devices in _STRETCHES if self._devices <= devices), _LONGEST_S
        )
        return length_s - self._wall() % length_s

    def _taken(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of the stretch that ends now, some devices at a time."""
        until = self._wall()
        ahead = until - self._clock()
        since, self._since = self._since, until
        self._devices = max(map(len, self._pushes))
        taken = [list(devices.items()) for devices in self._pushes]
        for devices in self._pushes:
            devices.clear()
        for channel, items in enumerate(taken):
            for start in range(0, len(items), _AT_ONCE):
                part = {
                    device: (int(found[0]), _ms(ahead + found[1]))
                    for device, found in items[start : start + _AT_ONCE]
                    if found is not self._nobodys
                }
                yield from push_records(_ms(since), _ms(until), [(channel, part)])


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
