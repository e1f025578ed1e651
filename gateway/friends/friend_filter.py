"""The filter of friends: everything that they are told of each other passes through here.

A friend sees where somebody is, from the beginning of the friendship on, but not where somebody
lives: what happened within the circle around a home (gateway.friends.home_blur) is told as its middle, to
the quarter of an hour, without road and house number. Ids are told as others that only the
installation can make, since those of fixes and places are made of times and positions. Only what is
named here is told; what apps add to their messages stays with its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, Protocol

from gateway.friends.home_blur import RADIUS_M, Circle, circles_around
from waylog.messages import Address, Fix

#: The name of the key in the database of users.
FRIEND_FILTER_SECRET: Final = "friend-filter"  # noqa: S105

_MINUTE_MS: Final = 60_000
#: To which times at home are told, and those of visits and trips elsewhere.
HOME_MS: Final = 15 * _MINUTE_MS
VISIT_MS: Final = 5 * _MINUTE_MS
_HOUR_S: Final = 3600
_DEGREE_DIGITS: Final = 5  # about a metre
_TRIP_DIGITS: Final = -2  # hundreds of metres
HOME: Final = "home"

#: Of an address within the circle; what is smaller would make the circle smaller.
_COARSE: Final = (
    *("city", "town", "municipality", "county", "state_district", "state"),
    *("country", "country_code"),
)
_USERS_MAX: Final = 50_000


class Homes(Protocol):
    """The homes of people, as the places job has found out."""

    @property
    def looked_up(self) -> bool:
        """Tell whether that is known yet."""

    def homes(self, user: str) -> Sequence[tuple[float, float]]:
        """Degrees of all homes of a user."""


class FriendFilter:
    """See above; `key` is a secret of the installation. Used on one event loop."""

    def __init__(self, homes: Homes, key: bytes) -> None:
        self._homes = homes
        self._key = key
        self._circles: dict[str, tuple[Circle, ...]] = {}
        self._known = asyncio.Event()

    def homes_changed(self) -> None:
        """Look homes up again."""
        self._circles.clear()
        if self.ready:
            self._known.set()

    async def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Wait for homes to be known, or so long."""
        if not self.ready:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._known.wait()

    @property
    def ready(self) -> bool:
        """Tell whether homes are known; until then friends are told of no positions."""
        return self._homes.looked_up

    def circles(self, owner: str) -> tuple[Circle, ...]:
        """Around the homes of a user."""
        circles = self._circles.get(owner)
        if circles is None:
            if len(self._circles) >= _USERS_MAX:
                self._circles.clear()
            circles = circles_around(owner, self._homes.homes(owner), self._key)
            self._circles[owner] = circles
        return circles

    def at_home(self, owner: str, lat: float, lon: float) -> Circle | None:
        """The circle that a position is in; None: it may be told."""
        return next((each for each in self.circles(owner) if each.has(lat, lon)), None)

    def id(self, kind: str, name: str) -> str:
        """Tell an id as another one: 24 hexadecimal digits, always the same for the same id."""
        return blake2b(f"{kind}\0{name}".encode(), key=self._key, digest_size=12).hexdigest()

    # --- positions ------------------------------------------------------------------------------

    def fix(self, fix: Fix) -> Fix | None:
        """Give what is told of a fix; None: nothing yet."""
        if not self.ready:
            return None
        tid = (fix.attributes or {}).get("tid")
        told = Fix(
            id=self.id("fix", fix.id),
            device=fix.device,
            user=fix.user,
            lat=round(fix.lat, _DEGREE_DIGITS),
            lon=round(fix.lon, _DEGREE_DIGITS),
            time=fix.time,
            received=fix.received,
            battery=fix.battery,
            source=fix.source,
            attributes={"tid": tid} if isinstance(tid, str) else None,
        )
        circle = self.at_home(fix.user, fix.lat, fix.lon)
        if circle is None:
            told.accuracy, told.altitude = fix.accuracy, fix.altitude
            told.vertical_accuracy, told.charging = fix.vertical_accuracy, fix.charging
            told.speed, told.course = fix.speed, fix.course
        else:
            told.lat, told.lon, told.accuracy = circle.lat, circle.lon, RADIUS_M
            told.time = told.received = rounded(fix.time, HOME_MS)
        return told

    def address(self, address: Address) -> Address | None:
        """Give what is told of an address; None: nothing yet."""
        if not self.ready:
            return None
        circle = self.at_home(address.device.partition("/")[0], address.lat, address.lon)
        told = Address(
            device=address.device,
            fix_id=self.id("fix", address.fix_id),
            time=address.time,
            lat=round(address.lat, _DEGREE_DIGITS),
            lon=round(address.lon, _DEGREE_DIGITS),
            display_name=address.display_name,
            address=address.address,
            distance=address.distance,
            resolved=address.resolved,
            index_version=address.index_version,
        )
        if circle is not None:
            parts = address.address
            told.address = {name: parts[name] for name in _COARSE if name in parts}
            names = [name for key, name in told.address.items() if key != "country_code"]
            told.display_name = ", ".join(dict.fromkeys(names)) or "near home"
            told.lat, told.lon, told.distance = circle.lat, circle.lon, None
            told.time = told.resolved = rounded(address.time, HOME_MS)
        return told

    # --- places ---------------------------------------------------------------------------------

    def place_id(self, owner: str, place_id: str | None) -> str | None:
        """Tell the id of a place that is not within a circle as another one."""
        return None if place_id is None else self.id("place", f"{owner}\0{place_id}")

    def places(
        self,
        owner: str,
        places: Iterable[dict[str, Any]],
        visits: Iterable[dict[str, Any]],
        since: int,
    ) -> list[dict[str, Any]]:
        """The places that somebody has been at since then (ms), as far as told by its visits."""
        count: dict[str, int] = {}
        dwell_s: dict[str, float] = {}
        for visit in visits:
            began = max(since, visit["arrival"])
            place_id = visit["place_id"]
            if place_id is not None and visit["departure"] >= since:
                count[place_id] = count.get(place_id, 0) + 1
                stayed_s = (visit["departure"] - began) / 1000
                dwell_s[place_id] = dwell_s.get(place_id, 0.0) + stayed_s
        shown = []
        for place in places:
            place_id = place["place_id"]
            if place_id not in count:
                continue
            stayed = {
                "visits": count[place_id],
                "dwell_s": round(dwell_s[place_id] / _HOUR_S) * _HOUR_S,
            }
            circle = self.at_home(owner, place["lat"], place["lon"])
            if circle is None:
                shown.append(place | stayed | {"place_id": self.place_id(owner, place_id)})
            elif place["label"] == HOME:
                hidden = {"place_id": HOME, "name": None, "address": None}
                shown.append(place | stayed | hidden | {"lat": circle.lat, "lon": circle.lon})
            # A shop next door would tell as much as the home itself.
        return shown

    def visits(
        self, owner: str, visits: Iterable[dict[str, Any]], since: int
    ) -> list[dict[str, Any]]:
        """Give what is told of visits since then (ms); all within a circle are at home."""
        shown = []
        for visit in visits:
            if visit["departure"] < since:
                continue
            circle = self.at_home(owner, visit["lat"], visit["lon"])
            step = VISIT_MS if circle is None else HOME_MS
            arrival = rounded(max(since, visit["arrival"]), step)
            departure = rounded(visit["departure"], step)
            told = visit | {
                "arrival": arrival,
                "departure": departure,
                "dwell_s": (departure - arrival) // 1000,
                "silent_s": None,
                "fixes": None,
            }
            if circle is None:
                told["place_id"] = self.place_id(owner, visit["place_id"])
            else:
                told |= {"place_id": HOME, "lat": circle.lat, "lon": circle.lon}
            shown.append(told)
        return shown

    def trips(
        self,
        owner: str,
        trips: Iterable[dict[str, Any]],
        places: Iterable[dict[str, Any]],
        since: int,
    ) -> list[dict[str, Any]]:
        """Give what is told of trips that began since then (ms); `places` are all of the owner's.

        The length of a way home would tell how far from its other end the home is.
        """
        inside = {
            place["place_id"]
            for place in places
            if self.at_home(owner, place["lat"], place["lon"]) is not None
        }
        shown = []
        for trip in trips:
            if trip["start"] < since:
                continue
            ends = {
                end: HOME if trip[end] in inside else self.place_id(owner, trip[end])
                for end in ("origin", "destination")
            }
            distance_m = trip["distance_m"]
            if distance_m is None or not {HOME, None}.isdisjoint(ends.values()):
                distance_m = None
            else:
                distance_m = round(distance_m, _TRIP_DIGITS)
            times = {
                name: rounded(trip[name], HOME_MS if ends[end] == HOME else VISIT_MS)
                for name, end in (("start", "origin"), ("end", "destination"))
            }
            shown.append(trip | ends | times | {"distance_m": distance_m})
        return shown


def told_at(record: Fix | Address) -> int:
    """The time (ms) that has to be in a friendship: that of the record, or of its arrival.

    A phone whose clock is ahead makes nothing younger than it is.
    """
    known = record.received if isinstance(record, Fix) else record.resolved
    return min(record.time, known) if known else record.time


def rounded(time: int, step: int) -> int:
    """The last whole step at or before a time."""
    return time - time % step
