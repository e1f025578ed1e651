"""A batch job for topology `heat-map`: all fixes grouped by cell and window, in SQL."""

from __future__ import annotations

import duckdb
import h3
import pandas as pd

#: Cell, window in seconds, start in ms: fixes and devices.
Counts = dict[tuple[str, int, int], tuple[int, int]]

_COUNTED = """
with clocked as (
    select *, max(moment) over (
        partition by kafka_partition order by kafka_offset
        rows between unbounded preceding and 1 preceding
    ) as clock
    from stored join cells using (lat, lon)
),
counted as (
    select * from clocked
    where clock is null or (moment // 60_000 + 1) * 60_000 + $grace_ms > clock
    -- Of the fixes of a second the first one.
    qualify row_number() over (partition by device, moment // 1000 order by kafka_offset) = 1
)
select cell, window_s, moment // (1000 * window_s) * 1000 * window_s as start,
    count(*) as fixes, count(distinct device) as devices
from counted, unnest([60, 3600]) as windows(window_s)
group by all
having devices >= $devices_min
"""


def counts(
    history: duckdb.DuckDBPyConnection,
    *,
    resolution: int = 8,
    grace_ms: int = 120_000,
    devices_min: int = 5,
) -> Counts:
    """Return fixes and devices of each cell and window, a minute or an hour long."""
    places = history.execute("select distinct lat, lon from stored").df()
    cells = [
        h3.latlng_to_cell(lat, lon, resolution)
        for lat, lon in zip(places["lat"], places["lon"], strict=True)
    ]
    history.register("cells", pd.DataFrame({**places, "cell": cells}))
    rows = history.execute(_COUNTED, {"grace_ms": grace_ms, "devices_min": devices_min}).fetchall()
    return {(cell, window, start): (fixes, devices) for cell, window, start, fixes, devices in rows}
