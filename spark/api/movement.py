"""Stay points, visits, places and trips of the devices in a DataFrame.

Fixes are sorted by device and time and pass through Python workers as a stream: nothing is
collected on the driver, and a device may have more fixes than there is memory. What is in a
worker's memory at once are the candidates of stays of one device, some 150 bytes each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.pandas.types import from_arrow_schema

from spark.api.columns import (
    CANDIDATES,
    PLACES,
    STAY_POINTS,
    TRIPS,
    VISITS,
    FixColumns,
    is_candidates,
)
from spark.api.workers import in_worker
from spark.places.reporting import STAY_MIN_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_WORK: Final = "spark.api.finding"

# What `stay_points` cleans: the accuracy (m) from which a fix is left out.
_ACCURACY_MAX_M: Final = 100.0
_GAP_S: Final = 86_400.0


def stay_candidates(
    fixes: DataFrame,
    *,
    device: str = "device",
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    accuracy: str | None = "accuracy",
    accuracy_max: float = _ACCURACY_MAX_M,
) -> DataFrame:
    """Return what may be stays, and what is known of the silences around them.

    This is the slow part of all functions here, and its result is small: `cache` it if several of
    them are asked, since each takes it in place of fixes. The columns are those of STAY_TYPE
    (spark.places.stay_points), times as timestamps and positions in degrees.
    """
    columns = FixColumns(device, time, lat, lon, accuracy)
    settings = {"accuracy_max": float(accuracy_max)}
    return _ordered(fixes, columns).mapInArrow(
        in_worker(_WORK, "candidates", settings), from_arrow_schema(CANDIDATES)
    )


def stay_points(
    fixes: DataFrame,
    *,
    distance_m: float = 100.0,
    duration_s: float = 300.0,
    gap_s: float = _GAP_S,
    clean: bool = True,
    accuracy_max: float = _ACCURACY_MAX_M,
    device: str = "device",
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    accuracy: str | None = "accuracy",
) -> DataFrame:
    """Return where devices stayed within `distance_m` of a fix for `duration_s` or more.

    Columns: `device`, `start`, `end` (timestamps), `lat`, `lon` (the mean of its fixes), `fixes`
    (their number), `dwell_s`, `silent_s` (part of it in silences of more than 15 minutes).

    With `clean`, fixes that cannot be true are left out, and silence is read by how the device
    reports (docs/places.md); `duration_s` is 300 or more then. Without it, stays are those of Li et
    al. (2008), as trackintel finds them, and a silence of more than `gap_s` ends a stay.

    Takes fixes, or what `stay_candidates` returns; those have been found with a distance of 100 m
    and with cleaning. Raises ValueError for columns or settings that cannot be used.
    """
    if not distance_m > 0 or not duration_s > 0 or not gap_s > 0:
        raise ValueError("distance_m, duration_s and gap_s are more than 0")
    if clean and duration_s * 1000 < STAY_MIN_MS:
        raise ValueError(
            f"duration_s={duration_s:g}: cleaned stays last {STAY_MIN_MS // 1000} s or more; "
            "clean=False finds shorter ones"
        )
    settings: dict[str, Any] = {
        "distance_m": float(distance_m),
        "duration_ms": round(duration_s * 1000),
        "gap_ms": round(gap_s * 1000),
        "clean": clean,
        "accuracy_max": float(accuracy_max),
    }
    if is_candidates(fixes) and not (clean and distance_m == 100.0):
        raise ValueError("candidates were found within 100 m, with cleaning: give fixes instead")
    columns = FixColumns(device, time, lat, lon, accuracy)
    least_ms = round(duration_s * 1000)
    return _found(fixes, columns, settings, "stay_points", STAY_POINTS, not clean, least_ms)


def visits(
    fixes: DataFrame,
    *,
    device: str = "device",
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    accuracy: str | None = "accuracy",
    accuracy_max: float = _ACCURACY_MAX_M,
) -> DataFrame:
    """Return the visits of each device: stays at one place with at most 30 minutes in between.

    Columns as in the files `visits/*.parquet` of the places job (docs/places.md), times as
    timestamps: `device`, `arrival`, `departure`, `place_id` (null for what is no favourite place),
    `lat`, `lon` (of the place), `dwell_s`, `silent_s`, `fixes`, `arrival_earliest`,
    `arrival_latest`, `departure_earliest`, `departure_latest`.

    Takes fixes, or what `stay_candidates` returns. Raises ValueError for columns that cannot be
    used.
    """
    columns = FixColumns(device, time, lat, lon, accuracy)
    return _found(fixes, columns, {"accuracy_max": float(accuracy_max)}, "visits", VISITS)


def trips(
    fixes: DataFrame,
    *,
    device: str = "device",
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    accuracy: str | None = "accuracy",
    accuracy_max: float = _ACCURACY_MAX_M,
) -> DataFrame:
    """Return the ways between two visits, as far as they are at most a day apart.

    Columns: `device`, `start`, `end` (timestamps), `origin`, `destination` (ids of places, or
    null), `distance_m` (in a straight line).

    Takes fixes, or what `stay_candidates` returns. Raises ValueError for columns that cannot be
    used.
    """
    columns = FixColumns(device, time, lat, lon, accuracy)
    return _found(fixes, columns, {"accuracy_max": float(accuracy_max)}, "trips", TRIPS)


def favourite_places(
    fixes: DataFrame,
    *,
    index: str | None = None,
    device: str = "device",
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    accuracy: str | None = "accuracy",
    accuracy_max: float = _ACCURACY_MAX_M,
) -> DataFrame:
    """Return the favourite places of each device, those with the most time first (`rank` 1).

    Columns as in `places.parquet` of the places job (docs/places.md), times as timestamps: `user`
    (the part of `device` before a slash), `device`, `place_id`, `lat`, `lon`, `label` (home, work
    or null), `name`, `visits`, `dwell_s`, `address`, `rank`, `days`, `radius_m`, `first`, `last`,
    `confidence` (of the label), `profile` (minutes in each hour of the local week, from Monday
    0:00), `roles` (what it was, from when to when).

    `name`, `address` and local times come from the geocoding index at `index`, by default the
    embedded world (see `reverse_geocode` for where it is looked for). Takes fixes, or what
    `stay_candidates` returns. Raises ValueError for columns that cannot be used.
    """
    columns = FixColumns(device, time, lat, lon, accuracy)
    return _found(fixes, columns, {"accuracy_max": float(accuracy_max)}, "places", PLACES, index)


def _found(
    frame: DataFrame,
    columns: FixColumns,
    settings: dict[str, Any],
    name: str,
    schema: pa.Schema,
    *arguments: object,
) -> DataFrame:
    """Return what a function of spark.api.finding finds in fixes or candidates."""
    finder: dict[str, Any] | None = settings
    if is_candidates(frame):
        rows, finder = _sorted(frame.select(*CANDIDATES.names), "device", "first"), None
    else:
        rows = _ordered(frame, columns)
    return rows.mapInArrow(in_worker(_WORK, name, finder, *arguments), from_arrow_schema(schema))


def _ordered(frame: DataFrame, columns: FixColumns) -> DataFrame:
    # By position and accuracy as well: of two fixes of the same time the first one counts, and a
    # task that is done again has to find the same.
    return _sorted(columns.of(frame), "device", "time", "lat", "lon", "accuracy")


def _sorted(frame: DataFrame, *names: str) -> DataFrame:
    return frame.repartition(names[0]).sortWithinPartitions(*names)
