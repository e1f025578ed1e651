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
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import shapely

from waylog.geofences.definition import Geofence, InvalidGeofence
from waylog.geofences.shape import Shape, shape_of
from waylog.great_circle import distances_m
from waylog.messages import EVERYBODY, Fix

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Degrees between the strips of two owners. A double still tells millimetres in a million strips.
_STRIP: Final = 540.0
_NO_CIRCLE: Final = (math.nan, math.nan, math.nan)
_NONE: Final = np.empty(0, dtype=np.intp)
#: New fences in the small tree, at least, before the large one is built again.
_FRESH_MAX: Final = 1000


@dataclass(frozen=True, eq=False, slots=True)
class Fence:
    """A geofence with its shape."""

    key: str  # owner/name, or owner/id
    owner: str
    name: str
    id: str | None  # where the key has an id
    shape: Shape
    is_circle: bool
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
            name if definition.title is None else definition.title,
            None if definition.title is None else name,
            shape_of(definition),
            definition.circle is not None,
            devices,
            round(definition.dwell * 1000),
            round(definition.minimum * 1000),
        )

    def is_for(self, device: str) -> bool:
        """Tell whether a fence applies to a device, `user/device`."""
        if self.owner not in (EVERYBODY, device.partition("/")[0]):
            return False
        return self.devices is None or device in self.devices


class FenceIndex:
    """All fences. Used in one thread."""

    def __init__(self) -> None:
        self._fences: dict[str, Fence] = {}
        # Where the strip of each owner begins, degrees; of all, and of users who have fences.
        self._strips: dict[str, float] = {}
        self._shifts: dict[str, float] = {}
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
        strip = self._strips.setdefault(fence.owner, len(self._strips) * _STRIP)
        if fence.owner != EVERYBODY:
            self._shifts[fence.owner] = strip
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
            self._shifts.pop(fence.owner, None)
        if self._fresh.pop(key, None) is not None:
            self._fresh_tree = None
        else:
            self._gone.add(fence)

    def candidates(
        self, fixes: Sequence[Fix], margins_m: Sequence[float]
    ) -> dict[int, list[Fence]]:
        """Return the fences that hold each fix by its margin, by the number of the fix.

        That is certain for circles. Of any other shape only a box is known to hold the place; one
        with two boxes may be there twice. The fences apply to the device. What it costs is in
        decision 30.
        """
        if not self._fences or not fixes:
            return {}
        self._build()
        assert self._fresh_tree is not None
        places = _Places(
            np.array([fix.lat for fix in fixes]),
            np.array([fix.lon for fix in fixes]),
            np.array(margins_m, dtype=np.float64),
        )
        numbers, shifts = self._strips_of(fixes)
        found: dict[int, list[Fence]] = {}
        for tree in (self._tree, self._fresh_tree):
            of, boxes = tree.query(places, numbers, shifts)
            if self._gone or tree.has_devices:
                of, boxes = self._applying(fixes, tree, of, boxes)
            if not of.size:
                continue
            fences = tree.fences[boxes].tolist()
            begins = np.flatnonzero(np.diff(of, prepend=-1))
            ends = [*begins[1:].tolist(), len(fences)]
            for number, begin, end in zip(of[begins].tolist(), begins.tolist(), ends, strict=True):
                if number in found:
                    found[number] += fences[begin:end]
                else:
                    found[number] = fences[begin:end]
        return found

    def _strips_of(self, fixes: Sequence[Fix]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the look-ups of fixes, ascending: the number of the fix, and degrees to its strip.

        One is in the strip of the fix's user, one in that of everybody, if these have fences.
        """
        columns = []
        if EVERYBODY in self._counts:
            columns.append(np.full(len(fixes), self._strips[EVERYBODY]))
        if self._shifts:
            shift_of = self._shifts.get
            columns.append(
                np.array([shift_of(fix.device.partition("/")[0], math.nan) for fix in fixes])
            )
        shifts = np.column_stack(columns)
        numbers, which = np.nonzero(~np.isnan(shifts))
        return numbers, shifts[numbers, which]

    def _applying(
        self,
        fixes: Sequence[Fix],
        tree: _Tree,
        of: NDArray[np.intp],
        boxes: NDArray[np.intp],
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Leave out fences that are gone, and those of other devices.

        A strip has the fences of its owner only.
        """
        gone = self._gone
        kept = [
            fence not in gone and (fence.devices is None or fixes[number].device in fence.devices)
            for number, fence in zip(of.tolist(), tree.fences[boxes].tolist(), strict=True)
        ]
        return of[kept], boxes[kept]

    def _build(self) -> None:
        if self._fresh_tree is not None:
            return
        if len(self._fresh) > max(_FRESH_MAX, len(self._fences) // 10):
            self._tree = _Tree(self._fences.values(), self._strips)
            self._fresh.clear()
            self._gone.clear()
        self._fresh_tree = _Tree(self._fresh.values(), self._strips)


class _Places(NamedTuple):
    """Where the fixes of a batch are, and how well that is known: degrees and metres."""

    lats: NDArray[np.float64]
    lons: NDArray[np.float64]
    margins_m: NDArray[np.float64]


class _Tree:
    """An R-tree of the boxes of fences."""

    def __init__(self, fences: Iterable[Fence], strips: dict[str, float]) -> None:
        listed: list[Fence] = []
        boxes = []
        for fence in fences:
            shift = strips[fence.owner]
            for west, south, east, north in fence.shape.boxes():
                listed.append(fence)
                boxes.append((west + shift, south, east + shift, north))
        self._tree = None
        if boxes:
            self._tree = shapely.STRtree(shapely.box(*np.array(boxes).T))
        #: The fence of each box. An array gives many of them at once.
        self.fences: Final = np.array(listed, dtype=np.object_)
        self.has_devices: Final = any(fence.devices is not None for fence in listed)
        # NaN for other shapes, which are asked one by one.
        self._circles = np.array(
            [fence.shape.circle or _NO_CIRCLE for fence in listed], dtype=np.float64
        ).reshape(-1, 3)

    def query(
        self, places: _Places, numbers: NDArray[np.intp], shifts: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return places, ascending, and boxes that hold them; a circle does by the margin.

        `numbers` are those of the places to look up, ascending, each in the strip that begins
        after as many degrees as `shifts` says.
        """
        if self._tree is None or not numbers.size:
            return _NONE, _NONE
        points = shapely.points(places.lons[numbers] + shifts, places.lats[numbers])
        found, boxes = self._tree.query(points)
        of = numbers[found]
        lat, lon, radius = self._circles[boxes].T
        depths = radius - distances_m(places.lats[of], places.lons[of], lat, lon)
        # NaN is no smaller.
        kept = ~(depths < places.margins_m[of])
        return of[kept], boxes[kept]
