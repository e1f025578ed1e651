"""A batch job for topology `meetings`: all pairs of positions at the same moments, in SQL."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pandas as pd

#: Both devices, first and last moment near each other in ms, and whether they moved together.
Meeting = tuple[str, str, int, int, bool]

_MEETINGS = """
with usable as (
    select device, user, moment, lat, lon,
        lead(moment) over own as next_moment, lead(lat) over own as next_lat,
        lead(lon) over own as next_lon
    from taken where accuracy is null or accuracy between 0 and $near_m
    window own as (partition by device order by moment)
),
positions as (
    select device, user, tick,
        lat + part * (next_lat - lat) as lat, lon + part * (next_lon - lon) as lon
    from (
        select *, (tick - moment) / (next_moment - moment) as part
        from (
            select *, unnest(generate_series(
                (moment // $interval_ms + 1) * $interval_ms, next_moment, $interval_ms)) as tick
            from usable where next_moment - moment <= $fresh_ms
        )
    )
),
near as (
    select one.device, other.device as friend, one.tick, one.lat, one.lon,
        metres(one.lat, one.lon, other.lat, other.lon) as away
    from positions as one
    join positions as other on one.tick = other.tick and one.device < other.device
    join friends on friends.user = one.user and friends.friend = other.user and one.tick >= since
    where away <= $leave_m
),
sessions as (
    select *, sum(begins::int) over (partition by device, friend order by tick) as session
    from (
        select *, coalesce(
            tick - lag(tick) over (partition by device, friend order by tick) > $apart_ms, true
        ) as begins
        from near
    )
)
select device, friend,
    min(tick) filter (away <= $near_m) as first,
    max(tick) filter (away <= $near_m) as last,
    metres(min(lat), min(lon), max(lat), max(lon)) >= $convoy_m
from sessions group by device, friend, session
having last - first >= $least_ms
order by all
"""


def meetings(
    history: duckdb.DuckDBPyConnection,
    friends: Iterable[tuple[str, str, int]],
    *,
    near_m: float = 50.0,
    leave_m: float = 75.0,
) -> list[Meeting]:
    """Return the meetings of friends; these are two users and since when they are friends in ms."""
    pairs = [
        row for one, other, since in friends for row in ((one, other, since), (other, one, since))
    ]
    history.register("friends", pd.DataFrame(pairs, columns=["user", "friend", "since"]))
    parameters = {
        "near_m": near_m,
        "leave_m": leave_m,
        "interval_ms": 30_000,
        "fresh_ms": 120_000,
        "apart_ms": 120_000,
        "least_ms": 300_000,
        "convoy_m": 1000.0,
    }
    return history.execute(_MEETINGS, parameters).fetchall()
