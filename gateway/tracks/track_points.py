"""Points of tracks as arrays, so that a year's points are processed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from gateway.friends.friend_filter import HOME_MS, SHOWN_ELSEWHERE
from gateway.friends.home_blur import RADIUS_M, Circle, Grid
from gateway.friends.told_squares import told_centres

if TYPE_CHECKING:
    import pyarrow as pa

MEASURED: Final = ("altitude", "accuracy", "speed", "course")

_HIDDEN_FROM_FRIENDS: Final = tuple(name for name in MEASURED if name not in SHOWN_ELSEWHERE)

#: The layout of `gateway.views.track_store.pack_point`; unmeasured values are NaN.
POINT: Final = np.dtype(
    [("time", "<i8"), ("lat", "<i4"), ("lon", "<i4"), *((name, "<f4") for name in MEASURED)]
)

Points = NDArray[np.void]


def unpacked(packed: bytes) -> Points:
    """Return packed points as an array, without copying them."""
    return np.frombuffer(packed, POINT)


def between(points: Points, from_ms: int, to_ms: int) -> Points:
    """Return the points with from_ms <= time <= to_ms."""
    times = points["time"]
    return points[(from_ms <= times) & (times <= to_ms)]


def points_of(table: pa.Table) -> Points:
    """Return the rows of a table with `time` in ms, `lat` and `lon` in degrees, and MEASURED."""
    points = np.empty(table.num_rows, POINT)
    points["time"] = table["time"].to_numpy()
    for name in ("lat", "lon"):
        points[name] = np.rint(table[name].to_numpy() * 1e7)
    for name in MEASURED:
        # Unknown values are NaN in the table and in the array.
        points[name] = table[name].to_numpy()
    return points


def merged(*tracks: Points) -> Points:
    """Return the points of several tracks by time; of equal points that of the last track."""
    points = np.concatenate(tracks)
    times = points["time"]
    if (times[1:] > times[:-1]).all():
        return points
    points = points[np.lexsort((points["lon"], points["lat"], points["time"]))]
    is_last = np.ones(len(points), bool)
    same = np.ones(max(len(points) - 1, 0), bool)
    for name in ("time", "lat", "lon"):
        same &= points[name][1:] == points[name][:-1]
    is_last[:-1] = ~same
    return points[is_last]


def as_told(
    points: Points,
    circles: Sequence[Circle],
    grid: Grid | None = None,
    from_ms: int = -(2**62),
) -> Points:
    """Return a track as friends, or viewers of a share, see it.

    Positions are rounded to a metre, and only what `SHOWN_ELSEWHERE` names is shown. Each stay in a
    circle around a home becomes one point at its centre, with its time rounded to a quarter of an
    hour (see gateway.friends.friend_filter). With a grid each stay in a square becomes one point at
    its centre, without what was measured; it tells what is from `from_ms` on, out of points from
    `begin_of_squares` on, as one square follows from another (gateway.friends.told_squares).
    """
    points = points.copy()
    for name in ("lat", "lon"):
        points[name] = np.rint(points[name] / 100) * 100
    for name in _HIDDEN_FROM_FRIENDS:
        points[name] = np.nan
    hidden, begins = _homes_hidden(points, circles)
    return hidden[begins] if grid is None else _in_squares(hidden, points["time"], grid, from_ms)


def _homes_hidden(points: Points, circles: Sequence[Circle]) -> tuple[Points, NDArray[np.bool_]]:
    """Return points with those in a circle at its centre, and which of them begin a stay there.

    Those outside of all circles count as beginnings, too.
    """
    lat, lon = points["lat"] / 1e7, points["lon"] / 1e7
    inside = np.full(len(points), -1)
    for number, circle in reversed(list(enumerate(circles))):
        inside[circle.has_each(lat, lon)] = number
    begins = np.ones(len(points), bool)
    begins[1:] = inside[1:] != inside[:-1]
    shown = points.copy()
    for number, circle in enumerate(circles):
        own = inside == number
        shown["lat"][own], shown["lon"][own] = round(circle.lat * 1e7), round(circle.lon * 1e7)
        for name in MEASURED:
            shown[name][own] = RADIUS_M if name == "accuracy" else np.nan
    times = points["time"]
    rounded = times - times % HOME_MS
    # Not before the previous point: the points of a track are in order.
    rounded[1:] = np.maximum(rounded[1:], times[:-1])
    shown["time"][inside >= 0] = rounded[inside >= 0]
    return shown, (inside < 0) | begins


def _in_squares(points: Points, times: NDArray[np.int64], grid: Grid, from_ms: int) -> Points:
    lat, lon = told_centres(times, points["lat"] / 1e7, points["lon"] / 1e7, grid)
    is_asked = times >= from_ms
    told = points[is_asked]
    told["lat"], told["lon"] = np.rint(lat[is_asked] * 1e7), np.rint(lon[is_asked] * 1e7)
    for name in MEASURED:
        told[name] = np.nan
    told["accuracy"] = grid.cell_m / 2
    told["time"] -= told["time"] % grid.step_ms
    begins = np.ones(len(told), bool)
    begins[1:] = (told["lat"][1:] != told["lat"][:-1]) | (told["lon"][1:] != told["lon"][:-1])
    return told[begins]


def degrees(points: Points, name: str) -> list[float]:
    """Return `lat` or `lon` in degrees."""
    values: list[float] = (points[name] / 1e7).tolist()
    return values


def measured(points: Points, name: str) -> list[float | None]:
    """Return measured values, rounded to three decimals; None where nothing was measured."""
    values = np.round(points[name].astype(np.float64), 3)
    unknown = np.isnan(values)
    if unknown.all():
        return [None] * len(values)
    known = values.astype(np.object_)
    known[unknown] = None
    found: list[float | None] = known.tolist()
    return found


def iso_times(points: Points) -> list[str]:
    """Return times as 2025-11-01T11:00:05.120Z (RFC 3339)."""
    text = np.datetime_as_string(points["time"].astype("M8[ms]"), unit="ms", timezone="UTC")
    times: list[str] = text.tolist()
    return times
