"""A batch job for topology `geofences`: depths of whole tracks, then islands of them in SQL.

Depths are computed on a plane around each fix instead of one around each fence: what is near a fix
is where it matters how far it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tests.consumers.streams.batch_jobs.history import RADIUS_M, chords_m

Definitions = Mapping[str, Mapping[str, Any]]
Degrees = NDArray[np.float64]
#: Device, transition, key of the fence, time and since.
Told = tuple[str, str, str, int, int]

_TRANSITIONS = """
with runs as (
    select *, sum(changes::int) over (partition by fence, device order by moment) as run
    from (
        select *, lag(inside) over (partition by fence, device order by moment)
            is distinct from inside as changes
        from sides
    )
),
lasting as (
    select *, min(moment) over (partition by fence, device, run) as since from runs where inside
),
stays as (
    select fence, device, run, since,
        min(moment) filter (moment - since >= minimum_ms) as entered,
        min(moment) filter (moment - since >= greatest(minimum_ms, dwell_ms) and dwell_ms > 0)
            as dwelt
    from lasting join limits using (fence) group by all
),
outside as (
    select fence, device, run - 1 as run, min(moment) as "left"
    from runs where not inside group by all
)
select device, 'enter', fence, entered, since from stays where entered is not null
union all
select device, 'dwell', fence, dwelt, since from stays where dwelt is not null
union all
select device, 'leave', fence, "left", since from stays join outside using (fence, device, run)
where entered is not null
order by all
"""


def transitions(history: duckdb.DuckDBPyConnection, definitions: Definitions) -> list[Told]:
    """Return all transitions of all devices."""
    fixes = history.execute(
        "select device, moment, lat, lon, coalesce(accuracy, 10) as accuracy from taken"
    ).df()
    users = fixes["device"].str.partition("/")[0]
    sides = []
    for key, definition in definitions.items():
        owner = key.partition("/")[0]
        applies = np.ones(len(fixes), bool) if owner == "*" else (users == owner).to_numpy()
        listed = definition.get("devices")
        if listed is not None:
            names = [each if "/" in each or owner == "*" else f"{owner}/{each}" for each in listed]
            applies &= fixes["device"].isin(names).to_numpy()
        own = fixes[applies]
        deep = depths_m(definition, own["lat"].to_numpy(), own["lon"].to_numpy())
        accuracy = own["accuracy"].to_numpy()
        decided = (deep >= accuracy) | (deep < -accuracy)
        sides.append(own[["device", "moment"]].assign(fence=key, inside=deep >= accuracy)[decided])
    history.register("sides", pd.concat(sides))
    limits = [
        (key, round(1000 * each.get("minimum", 0)), round(1000 * each.get("dwell", 0)))
        for key, each in definitions.items()
    ]
    history.register("limits", pd.DataFrame(limits, columns=["fence", "minimum_ms", "dwell_ms"]))
    return history.execute(_TRANSITIONS).fetchall()


def depths_m(definition: Mapping[str, Any], lats: Degrees, lons: Degrees) -> Degrees:
    """Return how many metres places are inside of a fence, negative outside.

    Exact to millimetres where that is little. Fences at the poles or the antimeridian are not
    considered.
    """
    if circle := definition.get("circle"):
        depths: Degrees = circle["radius"] - chords_m(lats, lons, circle["lat"], circle["lon"])
        return depths
    if corridor := definition.get("corridor"):
        half: float = corridor["width"] / 2
        return half - _away_m(corridor["line"]["coordinates"], lats, lons)
    geometry = definition["polygon"]
    polygons = geometry["coordinates"]
    if geometry["type"] == "Polygon":
        polygons = [polygons]
    # Holes count by parity, too.
    inside = np.zeros(len(lats), bool)
    away = np.full(len(lats), np.inf)
    for ring in (ring for rings in polygons for ring in rings):
        inside ^= _is_in(ring, lats, lons)
        away = np.minimum(away, _away_m(ring, lats, lons))
    return np.where(inside, away, -away)


def _is_in(ring: Sequence[Sequence[float]], lats: Degrees, lons: Degrees) -> NDArray[np.bool_]:
    """Count the edges that are north of each place."""
    inside = np.zeros(len(lats), bool)
    for (x, y), (other_x, other_y) in pairwise(ring):
        if x != other_x:
            crosses = (x > lons) != (other_x > lons)
            inside ^= crosses & (lats < y + (lons - x) / (other_x - x) * (other_y - y))
    return inside


def _away_m(line: Sequence[Sequence[float]], lats: Degrees, lons: Degrees) -> Degrees:
    """Return the distances to the nearest edge."""
    metres = np.radians(RADIUS_M)
    nearest = np.full(len(lats), np.inf)
    for (x, y), (other_x, other_y) in pairwise(line):
        # The meridians converge: lengths along a parallel are those between edge and place.
        scale = np.cos(np.radians((lats + np.clip(lats, min(y, other_y), max(y, other_y))) / 2))
        east, north = (x - lons) * scale * metres, (y - lats) * metres
        along, up = (other_x - x) * scale * metres, (other_y - y) * metres
        part = np.clip(-(east * along + north * up) / (along**2 + up**2), 0.0, 1.0)
        nearest = np.minimum(nearest, np.hypot(east + part * along, north + part * up))
    return nearest
