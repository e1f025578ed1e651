"""Points of a track as gateway.track_store packs them, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_MEASURED: Final = ("altitude", "accuracy", "speed", "course")

_POINT: Final = np.dtype(
    [("time", "<i8"), ("lat", "<i4"), ("lon", "<i4"), *((name, "<f4") for name in _MEASURED)]
)


def pack_points(table: pa.Table) -> bytes:
    """Of rows with the members of TrackPoint."""
    points = np.empty(table.num_rows, _POINT)
    points["time"] = table["time"].to_numpy()
    for name in ("lat", "lon"):
        points[name] = np.rint(table[name].to_numpy() * 1e7)
    for name in _MEASURED:
        # What is not known is NaN, here and there.
        points[name] = table[name].to_numpy()
    return points.tobytes()
