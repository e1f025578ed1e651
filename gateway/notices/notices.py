"""From new addresses to what a person is told: arrivals at favourite places.

Every worker follows all addresses, so that each can tell the devices connected to it; what must
happen once for all workers (Web Push, the record in topic `event`) is done by the one that holds a
lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.notices.arrivals import Arrival, Arrivals
from gateway.notices.owntracks_downlink import name_of, transition
from gateway.users.cards import tid_of
from gateway.views.places import Places
from gateway.views.views import LocationView
from waylog.messages import Event, decode_address, fix_id
from waylog.observability.telemetry import now_ms

logger = logging.getLogger(__name__)

#: An arrival is news for so long.
FRESH_MS: Final = 30 * 60 * 1000
_PENDING_MAX: Final = 10_000


class OncePerMachine:
    """A lock that one process of a machine holds until it ends."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)

    def held(self) -> bool:
        """Tell whether it is ours; tries to get it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._file)


class Notices:
    """Finds arrivals, and hands them to whoever tells them."""

    def __init__(
        self,
        places: Places,
        locations: LocationView,
        once: OncePerMachine,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._places = places
        self._locations = locations
        self._once = once
        self._clock_ms = clock_ms
        self._arrivals = Arrivals()
        self._pending: OrderedDict[str, Arrival] = OrderedDict()
        self._everywhere: list[Callable[[str, bytes], object]] = []
        self._once_only: list[Callable[[Arrival], object]] = []

    def tell(self, subscriber: Callable[[str, bytes], object]) -> None:
        """Call with the device and OwnTracks' transition, in every worker."""
        self._everywhere.append(subscriber)

    def tell_once(self, subscriber: Callable[[Arrival], object]) -> None:
        """Call with the arrival, in one worker of the machine."""
        self._once_only.append(subscriber)

    def address_changed(self, device: str, value: bytes) -> None:
        """For AddressView.on_address."""
        if not self._places.has(device.partition("/")[0]):
            return
        address = decode_address(value)
        now = self._clock_ms()
        if now - address.time > FRESH_MS:
            return  # a queue that drains, hours later
        places = self._places.known(device)
        arrival = self._arrivals.observe(device, address.time, address.lat, address.lon, places)
        if arrival is None:
            return
        self._pending[device] = arrival
        if len(self._pending) > _PENDING_MAX:
            self._pending.popitem(last=False)
        message = msgspec.json.encode(self._transition(arrival))
        for tell in self._everywhere:
            tell(device, message)
        if self._once_only and self._once.held():
            for tell_once in self._once_only:
                tell_once(arrival)

    def take(self, device: str) -> dict[str, Any] | None:
        """The transition that a device in HTTP mode has not been told yet."""
        if not self._pending:
            return None
        arrival = self._pending.pop(device, None)
        if arrival is None or self._clock_ms() - arrival.time > FRESH_MS:
            return None
        return self._transition(arrival)

    def _transition(self, arrival: Arrival) -> dict[str, Any]:
        fix = self._locations.latest(arrival.device)
        return transition(arrival, tid_of(arrival.device.partition("/")[2], fix))


def event_of(arrival: Arrival, received: int) -> Event:
    """An arrival as a record of topic `event`."""
    place = arrival.place
    return Event(
        id=fix_id(
            arrival.device, arrival.time, 0.0, 0.0, message_id=f"arrival\0{place['place_id']}"
        ),
        device=arrival.device,
        user=arrival.device.partition("/")[0],
        type="arrival",
        time=arrival.time,
        received=received,
        source="gateway",
        attributes={
            "place_id": place["place_id"],
            "name": name_of(place),
            "since": arrival.since,
            "lat": arrival.lat,
            "lon": arrival.lon,
        },
    )
