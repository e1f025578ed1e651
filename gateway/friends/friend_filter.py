"""The friend filter: everything that users are shown of their friends passes through it.

A friend sees a user's positions from the beginning of the friendship on, but not where the user
lives. Whatever happens within the circle around a home (gateway.friends.home_blur) is shown at the
centre of the circle, with the time rounded to a quarter of an hour, and without road and house
number. Ids of fixes and places are derived from times and positions, so they are replaced by keyed
hashes that only this installation can compute. Only members listed here are shown; attributes that
apps add to their messages are not, nor are members that fixes, places, visits and trips get later.
Tracks, whose points are arrays, are filtered by gateway.tracks.track_points with the same list.

A user may show some friends less, as a share may: squares in place of positions (`Terms`). Every
function takes the terms of who is told; what cannot be told as squares is not told at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeGuard

from gateway.friends.home_blur import RADIUS_M, Area, Circle, Grid, circles_around, grid_of
from gateway.friends.told_squares import Recent, ToldSquaresOfDevices, begin_of_squares
from gateway.shares.share import FRIENDS, TOWN_M, Terms
from waylog.messages import EVERYBODY, STREAMS, Address, Event, Fix

#: The name of the secret key in the user database.
FRIEND_FILTER_SECRET: Final = "friend-filter"  # noqa: S105

_MINUTE_MS: Final = 60_000
#: Rounding of times at home, and of visits and trips elsewhere, in ms.
HOME_MS: Final = 15 * _MINUTE_MS
VISIT_MS: Final = 5 * _MINUTE_MS
_HOUR_S: Final = 3600
_DEGREE_DIGITS: Final = 5  # about a metre
_TRIP_DIGITS: Final = -2  # hundreds of metres
HOME: Final = "home"

#: What friends are shown of a fix outside of all circles, besides position and times.
SHOWN_ELSEWHERE: Final = (
    *("accuracy", "altitude", "battery", "vertical_accuracy", "charging"),
    *("speed", "course"),
)
_OF_PLACES: Final = (
    *("user", "device", "place_id", "lat", "lon", "label", "name"),
    *("visits", "dwell_s", "address"),
)
_OF_VISITS: Final = (
    *("arrival", "departure", "place_id", "lat", "lon", "dwell_s"),
    *("silent_s", "fixes"),
)
_TRANSITIONS: Final = ("enter", "leave", "dwell")
_OF_FENCES: Final = ("transition", "fence", "owner")
_OF_TRIPS: Final = ("start", "end", "origin", "destination", "distance_m")

#: Parts of an address that are shown within the circle; smaller areas would narrow it down.
_COARSE: Final = (
    *("city", "town", "municipality", "county", "state_district", "state"),
    *("country", "country_code"),
)
#: The same where a position is told as a square that has several towns in it.
_WIDE: Final = ("state", "country", "country_code")
_USERS_MAX: Final = 50_000
_LARGEST: Final = 1e300


class Homes(Protocol):
    """The homes of users, as found by the places job."""

    @property
    def looked_up(self) -> bool:
        """Tell whether homes have been loaded."""

    def homes(self, user: str) -> Sequence[tuple[float, float]]:
        """Return all homes of a user as (lat, lon) in degrees."""


class Stays(NamedTuple):
    """How often, and how long (s), a user was at a place."""

    visits: int = 0
    dwell_s: float = 0.0


class StaysSince:
    """Stays at each place since the beginning of a friendship (ms)."""

    def __init__(self, since: int) -> None:
        self._since = since
        self.by_place: dict[str, Stays] = {}

    def add(self, visit: dict[str, Any]) -> None:
        """Count a visit, if it ended after the beginning, and what of it was after that."""
        place_id = visit["place_id"]
        if place_id is None or visit["departure"] < self._since:
            return
        visits, dwell_s = self.by_place.get(place_id, Stays())
        stayed_s = (visit["departure"] - max(self._since, visit["arrival"])) / 1000
        self.by_place[place_id] = Stays(visits + 1, dwell_s + stayed_s)


class FriendFilter:
    """Filters what a user's friends are shown; `key` is a secret of the installation.

    Squares follow from the `recent` positions too; without them, from those that this filter has
    told so far. Used on one event loop.
    """

    def __init__(self, homes: Homes, key: bytes, recent: Recent | None = None) -> None:
        self._homes = homes
        self._key = key
        self._recent = recent
        self._circles: dict[str, tuple[Circle, ...]] = {}
        self._squares = ToldSquaresOfDevices()
        self._known = asyncio.Event()
        #: Grows whenever homes have changed: what friends were shown before may be filtered anew.
        self.version = 0

    def homes_changed(self) -> None:
        """Discard cached circles after a change of homes."""
        self._circles.clear()
        self._squares.forget()
        self.version += 1
        if self.ready:
            self._known.set()

    async def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Wait until homes are loaded, at most `timeout_s`."""
        if not self.ready:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._known.wait()

    @property
    def ready(self) -> bool:
        """Tell whether homes are loaded; until then friends are shown no positions."""
        return self._homes.looked_up

    def circles(self, owner: str) -> tuple[Circle, ...]:
        """Return the circles around the homes of a user."""
        circles = self._circles.get(owner)
        if circles is None:
            if len(self._circles) >= _USERS_MAX:
                self._circles.clear()
            circles = circles_around(owner, self._homes.homes(owner), self._key)
            self._circles[owner] = circles
        return circles

    def at_home(self, owner: str, lat: float, lon: float) -> Circle | None:
        """Return the circle that contains a position, or None if the position may be shown."""
        return next((each for each in self.circles(owner) if each.has(lat, lon)), None)

    def circles_for(self, owner: str, terms: Terms) -> tuple[Circle, ...]:
        """Return the circles that are told in place of positions in them."""
        return self.circles(owner) if terms.hides_home else ()

    def grid_for(self, owner: str, terms: Terms) -> Grid | None:
        """Return the squares that are told in place of positions; None for positions."""
        if terms.cell_m is None:
            return None
        return grid_of(owner, terms.cell_m, terms.step_ms, self._key)

    def is_ready_for(self, terms: Terms) -> bool:
        """Tell whether all is known that positions need to be told under these terms."""
        return self.ready or not terms.hides_home

    def _circle(self, owner: str, lat: float, lon: float, terms: Terms) -> Circle | None:
        return self.at_home(owner, lat, lon) if terms.hides_home else None

    def id(self, kind: str, name: str) -> str:
        """Return a keyed hash of an id: 24 hexadecimal digits, always the same for the same id."""
        return blake2b(f"{kind}\0{name}".encode(), key=self._key, digest_size=12).hexdigest()

    # --- positions ------------------------------------------------------------------------------

    def fix(self, fix: Fix, terms: Terms = FRIENDS) -> Fix | None:
        """Return a fix as it may be seen, or None while homes are not loaded."""
        if not self.is_ready_for(terms):
            return None
        tid = (fix.attributes or {}).get("tid")
        told = Fix(
            id=self.id("fix", fix.id),
            device=fix.device,
            user=fix.user,
            lat=_rounded(fix.lat),
            lon=_rounded(fix.lon),
            time=fix.time,
            received=fix.received,
            source=fix.source,
            attributes={"tid": tid} if isinstance(tid, str) else None,
        )
        circle = self._circle(fix.user, fix.lat, fix.lon, terms)
        grid = self.grid_for(fix.user, terms)
        if circle is not None:
            told.lat, told.lon, told.accuracy = circle.lat, circle.lon, RADIUS_M
            told.time = told.received = rounded(fix.time, HOME_MS)
            told.id = self._quarter_id(fix.device, told.time)
        elif grid is None:
            for name in SHOWN_ELSEWHERE:
                setattr(told, name, getattr(fix, name))
        if grid is not None:
            self._into_square(told, told_at(fix), terms, grid)
            told.accuracy = max(told.accuracy or 0.0, grid.cell_m / 2)
            told.time = told.received = rounded(told.time, grid.step_ms)
            told.id = self._cell_id(told)
        return told

    def address(self, address: Address, terms: Terms = FRIENDS) -> Address | None:
        """Return an address as it may be seen, or None while homes are not loaded."""
        if not self.is_ready_for(terms):
            return None
        owner = address.device.partition("/")[0]
        circle = self._circle(owner, address.lat, address.lon, terms)
        grid = self.grid_for(owner, terms)
        told = Address(
            device=address.device,
            fix_id=self.id("fix", address.fix_id),
            time=address.time,
            lat=_rounded(address.lat),
            lon=_rounded(address.lon),
            display_name=address.display_name,
            address=address.address,
            distance=address.distance,
            resolved=address.resolved,
            index_version=address.index_version,
        )
        if circle is not None or grid is not None:
            parts = address.address
            is_wide = terms.cell_m is not None and terms.cell_m > TOWN_M
            shown = _WIDE if is_wide else _COARSE
            told.address = {name: parts[name] for name in shown if name in parts}
            names = [name for key, name in told.address.items() if key != "country_code"]
            unnamed = "near home" if circle is not None else "somewhere around"
            told.display_name = ", ".join(dict.fromkeys(names)) or unnamed
            told.distance = None
        if circle is not None:
            told.lat, told.lon = circle.lat, circle.lon
            told.time = told.resolved = rounded(address.time, HOME_MS)
            told.fix_id = self._quarter_id(address.device, told.time)
        if grid is not None:
            self._into_square(told, told_at(address), terms, grid)
            told.time = told.resolved = rounded(told.time, grid.step_ms)
            told.fix_id = self._cell_id(told)
        return told

    def _into_square(self, told: Fix | Address, time: int, terms: Terms, grid: Grid) -> None:
        """Move a record of a time (ms) to the middle of the square that is told of it."""
        device = told.device
        squares = self._squares.of(device, terms, grid)
        if self._recent is not None and squares.is_news(time):
            owner = device.partition("/")[0]
            begin = max(begin_of_squares(time), squares.next_ms)
            for each, lat, lon in self._recent.firsts(device, begin, time, grid.step_ms):
                at = self._circle(owner, lat, lon, terms) or (_rounded(lat), _rounded(lon))
                squares.square(each, *at)
        told.lat, told.lon = squares.square(time, told.lat, told.lon).centre

    # --- events ---------------------------------------------------------------------------------

    def event(self, event: Event, terms: Terms = FRIENDS) -> Event | None:
        """Return an event as friends may see it, or None: they are told of hardly any.

        That is the way into a fence of everybody, or out of it, away from home. The name of a
        user's own fence says what the place is to the user; speeding, silence and who is met are
        nobody's business; and whatever happens at home would show where the door is. Who sees
        squares is told of no fence, whose edge may be anywhere in them.
        """
        members = event.attributes or {}
        lat, lon = members.get("lat"), members.get("lon")
        if (
            not (self.ready and terms.is_exact)
            or (event.source, event.type, members.get("owner")) != (STREAMS, "geofence", EVERYBODY)
            or members.get("transition") not in _TRANSITIONS
            or not (is_number(lat) and is_number(lon))
            or self.at_home(event.user, lat, lon) is not None
        ):
            return None
        told = _only(_OF_FENCES, members)
        told |= {"lat": _rounded(lat), "lon": _rounded(lon)}
        return Event(
            id=self.id("event", event.id),
            device=event.device,
            user=event.user,
            type=event.type,
            time=event.time,
            received=event.received,
            source=event.source,
            attributes=told,
        )

    def company(self, event: Event) -> str | None:
        """Return whose device an own one has met, if its user may know; else None.

        Nobody is told of a meeting at the other one's home: a device that says to be everywhere
        would find out where that is. All places of a meeting count, since its beginning and its end
        tell of each other. Whoever may see both users, and exactly, has to be asked besides.
        """
        members = event.attributes or {}
        other, near_m = members.get("with"), members.get("near_m")
        area = _area(members.get("area"))
        if not self.ready or not isinstance(other, str) or area is None or not is_number(near_m):
            return None
        owner = other.partition("/")[0]
        at_home = any(circle.is_near(area, near_m) for circle in self.circles(owner))
        return None if at_home else other

    def _quarter_id(self, device: str, time: int) -> str:
        """Return an id that stays the same for a quarter of an hour at home."""
        return self.id("quarter", f"{device}\0{time}")

    def _cell_id(self, told: Fix | Address) -> str:
        """Return an id that stays the same in one cell for one step of time."""
        return self.id("cell", f"{told.device}\0{told.time}\0{told.lat}\0{told.lon}")

    # --- places ---------------------------------------------------------------------------------

    def place_id(self, owner: str, place_id: str | None) -> str | None:
        """Return a replacement for the id of a place outside of all circles."""
        return None if place_id is None else self.id("place", f"{owner}\0{place_id}")

    # These yield, because years of visits take longer than one turn of the event loop.

    # No place, visit or trip is told to those who see squares: they are found in exact positions.

    def places(
        self,
        owner: str,
        places: Iterable[dict[str, Any]],
        stays: Mapping[str, Stays],
        terms: Terms = FRIENDS,
    ) -> Iterator[dict[str, Any]]:
        """Yield the places of `stays`, with number and length of the visits."""
        for place in places if terms.is_exact else ():
            place_id = place["place_id"]
            stay = stays.get(place_id)
            if stay is None:
                continue
            stayed = {
                "visits": stay.visits,
                "dwell_s": round(stay.dwell_s / _HOUR_S) * _HOUR_S,
            }
            told = _only(_OF_PLACES, place) | stayed
            circle = self.at_home(owner, place["lat"], place["lon"])
            if circle is None:
                yield told | {"place_id": self.place_id(owner, place_id)}
            elif place["label"] == HOME:
                hidden = {"place_id": HOME, "name": None, "address": None}
                yield told | hidden | {"lat": circle.lat, "lon": circle.lon}
            # Other places within the circle are hidden: a shop next door reveals as much as the
            # home.

    def visits(
        self,
        owner: str,
        visits: Iterable[dict[str, Any]],
        since: int,
        terms: Terms = FRIENDS,
    ) -> Iterator[dict[str, Any]]:
        """Yield visits since `since` (ms) as friends see them. In a circle they are at home."""
        for visit in visits if terms.is_exact else ():
            if visit["departure"] < since:
                continue
            circle = self.at_home(owner, visit["lat"], visit["lon"])
            step = VISIT_MS if circle is None else HOME_MS
            arrival = rounded(max(since, visit["arrival"]), step)
            departure = rounded(visit["departure"], step)
            told = _only(_OF_VISITS, visit) | {
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
            yield told

    def trips(
        self,
        owner: str,
        trips: Iterable[dict[str, Any]],
        places: Iterable[dict[str, Any]],
        since: int,
        terms: Terms = FRIENDS,
    ) -> Iterator[dict[str, Any]]:
        """Yield trips that began since `since` (ms) as friends may see them.

        `places` are all of the owner's. The length of a trip from or to home is hidden, because it
        would reveal how far the home is from the other end.
        """
        positions: dict[str, list[tuple[float, float]]] = {}
        for place in places:
            positions.setdefault(place["place_id"], []).append((place["lat"], place["lon"]))
        shown: dict[str | None, str | None] = {None: None}
        for trip in trips if terms.is_exact else ():
            if trip["start"] < since:
                continue
            ends: dict[str, str | None] = {}
            for end in ("origin", "destination"):
                place_id = trip[end]
                if place_id not in shown:
                    found = positions.get(place_id, ())
                    at_home = any(self.at_home(owner, *each) is not None for each in found)
                    shown[place_id] = HOME if at_home else self.place_id(owner, place_id)
                ends[end] = shown[place_id]
            distance_m = trip["distance_m"]
            if distance_m is None or not {HOME, None}.isdisjoint(ends.values()):
                distance_m = None
            else:
                distance_m = round(distance_m, _TRIP_DIGITS)
            times = {
                name: rounded(trip[name], HOME_MS if ends[end] == HOME else VISIT_MS)
                for name, end in (("start", "origin"), ("end", "destination"))
            }
            yield _only(_OF_TRIPS, trip) | ends | times | {"distance_m": distance_m}


def _only(names: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `names` that a row has."""
    return {name: row[name] for name in names if name in row}


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a member of JSON is a number that can be computed with."""
    # No whole number is too large for a comparison, and nothing that is no number is less.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST < value < _LARGEST


def _rounded(degrees: float) -> float:
    return round(degrees, _DEGREE_DIGITS)


def _area(value: object) -> Area | None:
    """Return the area of a meeting's event; None if it is none."""
    if not isinstance(value, list) or len(value) != 4 or not all(map(is_number, value)):
        return None
    return Area(*value)


def told_at(record: Fix | Address | Event) -> int:
    """Return the time (ms) to compare with a friendship: that of the record, or of its arrival.

    The earlier one counts: a phone whose clock is ahead cannot make a record look newer than it is.
    """
    known = record.resolved if isinstance(record, Address) else record.received
    return min(record.time, known) if known else record.time


def rounded(time: int, step: int) -> int:
    """Return a time rounded down to a multiple of `step`."""
    return time - time % step
