"""Stay-point detection over one device's fixes; see stay_points.pyx."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

EARTH_RADIUS_M: Final[float]

#: Bytes of `StayFinder.state_bytes`.
STATE_BYTES: Final[int]

#: A stay: `start`, `end` and `seen` (the last fix in it) in ms, `silent` (ms of it that lie in
#: silences of more than 15 minutes), `fixes`, and the mean of these, `lat`, `lon`, in 1e-7 degrees.
STAY_TYPE: Final[np.dtype[Any]]

class StayFinder:
    """Finds the stays in fixes that come ascending by time, in any number of pieces.

    With `clean`, fixes that are worse than `accuracy_max` (m), not newer than the one before,
    spikes or impossibly fast are left out; and a stay that ends in a silence of more than 15
    minutes, with the device found elsewhere, ends half way (but guesses no more than was seen).
    Without it, stays start and end where trackintel's do.
    """

    def __init__(
        self,
        distance_m: float = 100.0,
        duration_ms: int = 300_000,
        gap_ms: int = 86_400_000,
        clean: bool = True,
        accuracy_max: float = 100.0,
    ) -> None: ...
    @property
    def newest(self) -> int | None:
        """Time of the newest fix that was taken (ms)."""

    def reset(self) -> None:
        """Begin with another device."""

    def feed(
        self,
        time_ms: NDArray[np.int64],
        lat: NDArray[np.int32],
        lon: NDArray[np.int32],
        accuracy: NDArray[np.float32] | None = None,
    ) -> None:
        """Take further fixes; positions in 1e-7 degrees. Raises ValueError if lengths differ."""

    def take(self) -> NDArray[Any]:
        """The stays that ended since the last call, as STAY_TYPE."""

    def take_open(self) -> NDArray[Any]:
        """The same, and the stay that would end if no fix followed. What is open stays open."""

    def state_bytes(self) -> bytes:
        """What is open now; to be taken after `take`."""

    def restore(self, state: bytes) -> None:
        """Go on from there. Raises ValueError for anything of another length."""

def haversine_m(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    """Great-circle distance in m on a sphere of EARTH_RADIUS_M; arguments in degrees."""

def link_places(
    lat: NDArray[np.float64], lon: NDArray[np.float64], distance_m: float = 100.0
) -> NDArray[np.int64]:
    """Number the points by single linkage: those within `distance_m` of each other share a number.

    The same as DBSCAN with one sample a cluster. Numbers start at 0, in the order of each group's
    first point. Raises ValueError when the arrays differ in length.
    """
