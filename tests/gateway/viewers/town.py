"""Devices, and the viewers of their map: the real parts, on a clock of its own."""

from __future__ import annotations

from gateway.friends.friend_filter import FriendFilter
from gateway.viewers.areas import AreaViews
from gateway.views.location_view import LocationView
from waylog.messages import Fix, encode

NOW = 1_780_000_000_000


class Record:
    def __init__(self, fix: Fix, offset: int) -> None:
        self._fix, self._offset = fix, offset

    def key(self) -> bytes:
        return self._fix.device.encode()

    def value(self) -> bytes:
        return encode(self._fix)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._fix.received


class Homes:
    """Homes that a test sets."""

    def __init__(self, *homes: tuple[float, float], looked_up: bool = True) -> None:
        self.of = {"ada": homes}
        self.looked_up = looked_up

    def homes(self, user: str) -> tuple[tuple[float, float], ...]:
        return self.of.get(user, ())


class Town:
    """A view of fixes, the viewers of its map, and the time."""

    def __init__(self, homes: Homes | None = None, points_from: int = 2_000) -> None:
        self.locations = LocationView()
        self.filter = FriendFilter(homes or Homes(), b"secret")
        self.areas = AreaViews(self.locations, self.filter, points_from)
        self.now = NOW
        self._offset = 0

    def fix(self, device: str, lat: float, lon: float, **members: float) -> Fix:
        self._offset += 1
        fix = Fix(
            id=f"f{self._offset}",
            device=device,
            user=device.partition("/")[0],
            lat=lat,
            lon=lon,
            time=self.now,
            received=self.now,
        )
        for name, value in members.items():
            setattr(fix, name, value)
        self.locations.on_records([Record(fix, self._offset)])
        return fix

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += 250
            for _ in self.areas.steps(self.now):
                pass
