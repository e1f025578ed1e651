"""The geofences that there are, and those that may hold a place.

Candidates come from an R-tree (shapely's STRtree), asked for all places of a batch at once. All
owners share a tree: each has a strip of the plane of its own, a turn and a half wide, in which its
fences and the fixes of its devices are. So nobody's fixes meet the fences of others, however many
of them are at the same place. A tree cannot be changed; what is new waits in a small second one,
until it is worth the time to build the large one again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import shapely

from consumers.streams.geofences.definition import Geofence, InvalidGeofence
from consumers.streams.geofences.shape import Shape, shape_of
from waylog.great_circle import distances_m
from waylog.messages import EVERYBODY, Fix

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Degrees between the strips of two owners. A double still tells millimetres in a million strips.
_STRIP: Final = 540.0
_NO_CIRCLE: Final = (math.nan, math.nan, math.nan)
#: New fences in the small tree, at least, before the large one is built again.
_FRESH_MAX: Final = 1000


@dataclass(frozen=True, eq=False, slots=True)
class Fence:
    """A geofence with its shape."""

    key: str  # owner/name
    owner: str
    name: str
    shape: Shape
    devices: frozenset[str] | None  # user/device; None: all of the owner
    dwell_ms: int
    minimum_ms: int

    @classmethod
    def of(cls, key: str, definition: Geofence) -> Fence:
        """Return the fence of a record; raises InvalidGeofence."""
        owner, slash, name = key.partition("/")
        if not (owner and slash and name):
            raise InvalidGeofence("the key is owner/name")
        devices = None
        if definition.devices is not None:
            devices = frozenset(
                each if "/" in each or owner == EVERYBODY else f"{owner}/{each}"
                for each in definition.devices
            )
        return cls(
            key,
            owner,
            name,
            shape_of(definition),
            devices,
            round(definition.dwell * 1000),
            round(definition.minimum * 1000),
        )

    def is_for(self, device: str) -> bool:
        """Tell whether a fence applies to a device, `user/device`."""
        if self.owner not in (EVERYBODY, device.partition("/")[0]):
            return False
        return self.devices is None or device in self.devices


#: A fence that may hold a place, and how many metres inside of it the place is (negative:
#: outside); NaN if only the shape itself can say so.
Candidate = tuple[Fence, float]


class FenceIndex:
    """All fences. Used in one thread."""

    def __init__(self) -> None:
        self._fences: dict[str, Fence] = {}
        self._strips: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._tree: _Tree = _Tree((), self._strips)
        self._fresh: dict[str, Fence] = {}
        self._fresh_tree: _Tree | None = None
        #: Fences that the large tree has and that were removed or replaced since.
        self._gone: set[Fence] = set()

    def __len__(self) -> int:
        return len(self._fences)

    def get(self, key: str) -> Fence | None:
        """Return the fence of a key, None if there is none (any more)."""
        return self._fences.get(key)

    def has_fences_for(self, device: str) -> bool:
        """Tell whether there are fences of a device's user, or of everybody."""
        return bool(self._counts) and (
            EVERYBODY in self._counts or device.partition("/")[0] in self._counts
        )

    def put(self, fence: Fence) -> None:
        """Add a fence, in place of one with the same key."""
        self.remove(fence.key)
        self._fences[fence.key] = fence
        self._counts[fence.owner] = self._counts.get(fence.owner, 0) + 1
        self._strips.setdefault(fence.owner, len(self._strips))
        self._fresh[fence.key] = fence
        self._fresh_tree = None

    def remove(self, key: str) -> None:
        """Remove a fence, if it is there."""
        fence = self._fences.pop(key, None)
        if fence is None:
            return
        left = self._counts[fence.owner] - 1
        if left:
            self._counts[fence.owner] = left
        else:
            del self._counts[fence.owner]
        if self._fresh.pop(key, None) is not None:
            self._fresh_tree = None
        else:
            self._gone.add(fence)

    def candidates(self, fixes: Sequence[Fix]) -> dict[int, dict[str, Candidate]]:
        """Return the fences for each fix whose boxes hold its place: by index and by key.

        They apply to the device. Costs some 0.4 us a fix and 0.4 us a candidate in a batch of
        hundreds, with 100,000 fences.
        """
        if not self._fences or not fixes:
            return {}
        self._build()
        assert self._fresh_tree is not None
        numbers, xs, ys = self._places(fixes)
        lats, lons = np.array([[fix.lat, fix.lon] for fix in fixes]).T
        at = np.array(numbers, dtype=np.intp)
        found: dict[int, dict[str, Candidate]] = {}
        gone = self._gone
        for tree in (self._tree, self._fresh_tree):
            places, fences, depths = tree.query(xs, ys, at, lats, lons)
            for number, fence, depth_m in zip(places, fences, depths, strict=True):
                if gone and fence in gone:
                    continue
                # A strip has the fences of its owner only.
                if fence.devices is not None and fixes[number].device not in fence.devices:
                    continue
                listed = found.get(number)
                if listed is None:
                    listed = found[number] = {}
                listed[fence.key] = (fence, depth_m)
        return found

    def _places(self, fixes: Sequence[Fix]) -> tuple[list[int], list[float], list[float]]:
        """Return the places to look up: in the strip of each fix's user, and of everybody."""
        counts, strips = self._counts, self._strips
        everybody = strips[EVERYBODY] * _STRIP if EVERYBODY in counts else None
        numbers: list[int] = []
        xs: list[float] = []
        ys: list[float] = []
        for number, fix in enumerate(fixes):
            user = fix.device.partition("/")[0]
            if user in counts and user != EVERYBODY:
                numbers.append(number)
                xs.append(strips[user] * _STRIP + fix.lon)
                ys.append(fix.lat)
            if everybody is not None:
                numbers.append(number)
                xs.append(everybody + fix.lon)
                ys.append(fix.lat)
        return numbers, xs, ys

    def _build(self) -> None:
        if self._fresh_tree is not None:
            return
        if len(self._fresh) > max(_FRESH_MAX, len(self._fences) // 10):
            self._tree = _Tree(self._fences.values(), self._strips)
            self._fresh.clear()
            self._gone.clear()
        self._fresh_tree = _Tree(self._fresh.values(), self._strips)


class _Tree:
    """An R-tree of the boxes of fences."""

    def __init__(self, fences: Iterable[Fence], strips: dict[str, int]) -> None:
        self._fences: list[Fence] = []
        boxes = []
        for fence in fences:
            shift = strips[fence.owner] * _STRIP
            for west, south, east, north in fence.shape.boxes():
                self._fences.append(fence)
                boxes.append((west + shift, south, east + shift, north))
        self._tree = None
        if boxes:
            self._tree = shapely.STRtree(shapely.box(*np.array(boxes).T))
        # NaN for shapes other than circles, which are asked one by one.
        self._circles = np.array(
            [fence.shape.circle or _NO_CIRCLE for fence in self._fences], dtype=np.float64
        ).reshape(-1, 3)

    def query(
        self,
        xs: Sequence[float],
        ys: Sequence[float],
        numbers: NDArray[np.intp],
        lats: NDArray[np.float64],
        lons: NDArray[np.float64],
    ) -> tuple[list[int], list[Fence], list[float]]:
        """Return fixes and fences whose boxes hold their places, and how deep they are in circles.

        `numbers` are the fixes of the places `xs` and `ys`, in degrees with the strip; `lats` and
        `lons` are the places of all fixes. Metres; NaN for shapes other than circles.
        """
        if self._tree is None or not xs:
            return [], [], []
        places, boxes = self._tree.query(shapely.points(xs, ys))
        of = numbers[places]
        lat, lon, radius = self._circles[boxes].T
        depths = radius - distances_m(lats[of], lons[of], lat, lon)
        fences = self._fences
        return of.tolist(), [fences[box] for box in boxes.tolist()], depths.tolist()
