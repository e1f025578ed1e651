"""A batch job for topology `speed`: speeds of whole tracks, then islands of them in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tests.consumers.streams.batch_jobs.history import chords_m


class Speeding(NamedTuple):
    """A time during which a device was too fast: ms, and m/s."""

    device: str
    since: int
    end: int | None  # None: it goes on
    first: float
    fastest: float


_EPISODES = """
with marked as (
    select *,
        speed > maximum as above,
        coalesce(speed <= maximum * (1 - $hysteresis), false) as below
    from speeds
),
counted as (
    select *, sum(below::int) over (partition by device order by moment) as ends from marked
),
fast as (
    select *,
        lag(ends) over own is distinct from ends
            or moment - lag(moment) over own > $silence_ms as begins
    from counted where above
    window own as (partition by device order by moment)
),
numbered as (
    select *, sum(begins::int) over (partition by device order by moment) as episode from fast
),
episodes as (
    select device, min(moment) as since, max(moment) as last,
        arg_min(speed, moment) as first, max(speed) as fastest
    from numbered group by device, episode
)
select device, since,
    coalesce(
        (select min(moment) from marked
         where marked.device = episodes.device and below
             and moment > last and moment <= last + $silence_ms),
        case when exists (
            from marked where marked.device = episodes.device and moment > last + $silence_ms
        ) then last end
    ) as until,
    first, fastest
from episodes order by device, since
"""


def speedings(
    history: duckdb.DuckDBPyConnection,
    limits: Mapping[str, float],
    limit: float,
    *,
    hysteresis: float = 0.1,
    implausible: float = 400 / 3.6,
    silence_ms: int = 600_000,
) -> list[Speeding]:
    """Return when devices were faster than the limit of their user, else that of all (m/s)."""
    tracks = history.execute(
        "select device, user, moment, lat, lon, accuracy, speed from taken order by device, moment"
    ).df()
    found = []
    for _, own in tracks.groupby("device", sort=False):
        said = own["speed"].to_numpy(np.float64)
        with np.errstate(invalid="ignore"):
            said = np.where((said >= 0) & (said <= implausible), said, np.nan)
        speeds = _speeds(own, said, implausible, silence_ms)
        maximum = own["user"].map(limits).fillna(limit)
        found.append(own[["device", "moment"]].assign(speed=speeds, maximum=maximum))
    history.register("measured", pd.concat(found))
    # What pandas has for unknown is a number for DuckDB.
    history.execute(
        "create or replace temp table speeds as "
        "select * replace (case when isnan(speed) then null else speed end as speed) from measured"
    )
    rows = history.execute(
        _EPISODES, {"hysteresis": hysteresis, "silence_ms": silence_ms}
    ).fetchall()
    return [Speeding(*row) for row in rows]


def _speeds(
    own: pd.DataFrame, said: NDArray[np.float64], implausible: float, silence_ms: int
) -> NDArray[np.float64]:
    """Return the speed of each fix: said, else measured from the position before that counts.

    Which positions count is found by leaving out one after the other that does not.
    """
    moment = own["moment"].to_numpy()
    lat, lon = own["lat"].to_numpy(), own["lon"].to_numpy()
    accuracy = own["accuracy"].fillna(0.0).to_numpy()
    speeds = said.copy()
    counting = np.arange(len(own))
    begin = 0
    while True:
        before, after = counting[begin:-1], counting[begin + 1 :]
        apart_ms = moment[after] - moment[before]
        away = chords_m(lat[after], lon[after], lat[before], lon[before])
        measured = np.maximum(0.0, away - accuracy[before] - accuracy[after]) * 1000 / apart_ms
        near = apart_ms <= silence_ms
        soon = near & (apart_ms < 1000)
        jump = near & ~soon & (measured > implausible)
        left_out = np.flatnonzero(soon | jump)
        end = left_out[0] if left_out.size else len(after)
        use = near[:end] & np.isnan(said[after[:end]])
        speeds[after[:end][use]] = measured[:end][use]
        if not left_out.size:
            return speeds
        if jump[end]:
            speeds[after[end]] = np.nan
        counting = np.delete(counting, begin + 1 + end)
        begin += end
