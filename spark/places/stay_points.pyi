"""Stay-point detection over one device's fixes; see stay_points.pyx."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Length of `StayFinder.state_bytes`, in bytes.
STATE_BYTES: Final[int]

#: A stay: `start`, `end` and `seen` (time of its last fix) in ms, `silent` (ms in silences of more
#: than 15 minutes), `fixes` (their number), and their mean position `lat`, `lon`, in 1e-7 degrees.
#: `first` is the time of its first fix; `quiet` and `longest` are the sum of the silences between
#: its fixes and the longest of them (ms). `before` and `after` are the times of the fixes around
#: it, with their positions; `before` is `first` and `after` is `seen` if there are none.
STAY_TYPE: Final[np.dtype[Any]]

class StayFinder:
    """A stay-point detector for fixes that come ascending by time, in any number of chunks.

    With `clean`, these fixes are dropped: fixes less accurate than `accuracy_max` (m), fixes not
    newer than the one before, spikes, and impossibly fast ones. If a stay ends in a silence of more
    than 15 minutes, after which the device is elsewhere, the end is put halfway into the silence,
    but at most twice as long after the last fix as the stay was observed. A stay that was seen for
    less than `duration_ms` is reported if the silences around it leave time for as much: it may
    be none. Without `clean`, stays start and end where trackintel's do.
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
        """The time of the newest fix that was taken (ms)."""

    def reset(self) -> None:
        """Start with another device."""

    def resume(self, time_ms: int, lat: int, lon: int) -> None:
        """Start with a device from which this fix is known, the last one of a stay that ended."""

    def feed(
        self,
        time_ms: NDArray[np.int64],
        lat: NDArray[np.int32],
        lon: NDArray[np.int32],
        accuracy: NDArray[np.float32] | None = None,
    ) -> None:
        """Process further fixes, in 1e-7 degrees. Raises ValueError if lengths differ."""

    def take(self) -> NDArray[Any]:
        """Return the stays that ended since the last call, as STAY_TYPE."""

    def take_open(self) -> NDArray[Any]:
        """Return the same, and the stay that would end if no fix followed.

        The state does not change.
        """

    def state_bytes(self) -> bytes:
        """Return the state of what is unfinished; call it after `take`."""

    def restore(self, state: bytes) -> None:
        """Continue from a state. Raises ValueError if it has the wrong length."""

def haversine_m(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    """Return the great-circle distance in m on a sphere of EARTH_RADIUS_M; arguments in degrees."""

def link_places(
    lat: NDArray[np.float64], lon: NDArray[np.float64], distance_m: float = 100.0
) -> NDArray[np.int64]:
    """Number the points by single linkage: points within `distance_m` of each other share a number.

    This equals DBSCAN with a minimum of one sample per cluster. Numbers start at 0, in the order of
    each group's first point. Raises ValueError when the arrays differ in length.
    """
