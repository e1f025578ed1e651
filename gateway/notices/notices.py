"""Detects arrivals at favourite places from new addresses, and passes them on.

Every worker follows all addresses, so that each can notify the devices connected to it. What must
happen once per machine (Web Push, the record in topic `event`) is done by the worker that holds a
lock.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.notices.arrivals import Arrival, Arrivals
from gateway.notices.owntracks_downlink import name_of, transition
from gateway.users.cards import tid_of
from gateway.views.location_view import LocationView
from gateway.views.places import Places
from waylog.messages import Event, decode_address, fix_id
from waylog.observability.telemetry import now_ms
from waylog.process.machine_lock import MachineLock

logger = logging.getLogger(__name__)

#: Milliseconds after which an arrival is no longer announced.
FRESH_MS: Final = 30 * 60 * 1000
_PENDING_MAX: Final = 10_000


class Notices:
    """Detects arrivals and calls the subscribers."""

    def __init__(
        self,
        places: Places,
        locations: LocationView,
        once: MachineLock,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._places = places
        self._locations = locations
        self._once = once
        self._clock_ms = clock_ms
        self._arrivals = Arrivals()
        # Time and transition of what devices in HTTP mode have not received yet.
        self._pending: OrderedDict[str, tuple[int, dict[str, Any]]] = OrderedDict()
        self._everywhere: list[Callable[[str, bytes], object]] = []
        self._once_only: list[Callable[[Arrival], object]] = []

    def tell(self, subscriber: Callable[[str, bytes], object]) -> None:
        """Subscribe to arrivals in every worker, with the device and OwnTracks' transition."""
        self._everywhere.append(subscriber)

    def tell_once(self, subscriber: Callable[[Arrival], object]) -> None:
        """Subscribe to arrivals in one worker of the machine: called with the arrival."""
        self._once_only.append(subscriber)

    def address_changed(self, device: str, value: bytes) -> None:
        """Take a new address; the callback of AddressView.on_address."""
        if not self._places.has(device.partition("/")[0]):
            return
        address = decode_address(value)
        now = self._clock_ms()
        if now - address.time > FRESH_MS:
            return  # resolved hours late, from a backlog
        places = self._places.known(device)
        arrival = self._arrivals.observe(device, address.time, address.lat, address.lon, places)
        if arrival is None:
            return
        told = self._transition(arrival)
        self.keep(device, arrival.time, told)
        message = msgspec.json.encode(told)
        for tell in self._everywhere:
            tell(device, message)
        if self._once_only and self._once.held():
            for tell_once in self._once_only:
                tell_once(arrival)

    def keep(self, device: str, time: int, told: dict[str, Any]) -> None:
        """Keep a transition, of a time in ms, for a device in HTTP mode."""
        self._pending[device] = (time, told)
        if len(self._pending) > _PENDING_MAX:
            self._pending.popitem(last=False)

    def take(self, device: str) -> dict[str, Any] | None:
        """Return the transition that a device in HTTP mode has not received yet, or None."""
        if not self._pending:
            return None
        time, told = self._pending.pop(device, (0, None))
        return None if self._clock_ms() - time > FRESH_MS else told

    def _transition(self, arrival: Arrival) -> dict[str, Any]:
        return transition(arrival, self.tid_of(arrival.device))

    def tid_of(self, device: str) -> str:
        """Return the two characters by which OwnTracks shows a device."""
        return tid_of(device.partition("/")[2], self._locations.latest(device))


def event_of(arrival: Arrival, received: int) -> Event:
    """Return an arrival as a record of topic `event`."""
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
