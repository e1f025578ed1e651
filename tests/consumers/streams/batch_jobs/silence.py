"""A batch job for topology `silence`: all gaps of all devices at once, in SQL."""

from __future__ import annotations

import duckdb

#: Device, transition, time and since in ms, and the limit or the length in seconds.
Told = tuple[str, str, int, int, float]

_GAPS = """
create or replace temp table gaps as
with clocked as (
    select *, coalesce(
        max(moment) over (
            partition by kafka_partition order by kafka_offset
            rows between unbounded preceding and 1 preceding
        ), moment
    ) as clock
    from taken
),
heard as (
    select device, kafka_partition, moment, greatest(moment, clock) as heard from clocked
)
select device, kafka_partition,
    coalesce(lag(heard) over own, moment) as since,
    heard as until,
    lag(heard) over own is null as is_first
from heard window own as (partition by device order by moment)
"""

_EVENTS = """
with ends as (
    select kafka_partition, max(moment) as clock from taken group by all
),
candidates as (
    select device, since, until, false as goes_on from gaps where not is_first
    union all
    select device, max(until), any_value(clock), true
    from gaps join ends using (kafka_partition) group by device
),
long as (
    select * from candidates where until - since > $minimum_ms
),
-- For each hour of the day and each day: the longest silence from then to its end.
cells as (
    select device, until as known, hour, least(90, ceil(4 * log2(greatest(
        60, (until - greatest(since, hour * 3_600_000)) / 1000) / 60))) as level
    from gaps, unnest(generate_series(
        since // 3_600_000, least(until // 3_600_000, since // 3_600_000 + 23))) as hours(hour)
),
days as (
    select device, since, until, goes_on, unnest(generate_series(0, 6)) as back from long
),
by_day as (
    select days.device, days.since, any_value(days.until) as until, any_value(goes_on) as goes_on,
        back, count(hour) > 0 as is_known,
        max(60 * pow(2, level / 4)) filter (
            (hour % 24 - days.since // 3_600_000 % 24 + 25) % 24 <= 2) as longest
    from days left join cells
        on cells.device = days.device and known <= days.since
        and hour // 24 = days.since // 86_400_000 - back
    group by days.device, days.since, back
),
usual as (
    select device, since, any_value(until) as until, any_value(goes_on) as goes_on,
        count_if(is_known) as days,
        list_reverse_sort(list(coalesce(longest, 0.0)))[2] as seconds
    from by_day group by device, since
),
limited as (
    select *, greatest($minimum_ms, case when days < $learn_days then $unlearned_ms
        else round($factor * seconds * 1000) end)::bigint as limit_ms
    from usual
)
select device, 'begin', since + limit_ms, since, limit_ms / 1000
from limited where until - since > limit_ms
union all
select device, 'end', until, since, (until - since) / 1000
from limited where until - since > limit_ms and not goes_on
order by all
"""


def silences(
    history: duckdb.DuckDBPyConnection,
    *,
    factor: float = 1.5,
    minimum_ms: int = 900_000,
    learn_days: int = 3,
    unlearned_ms: int = 86_400_000,
) -> list[Told]:
    """Return when devices were silent for longer than usual, and when they were back."""
    history.execute(_GAPS)
    parameters = {
        "factor": factor,
        "minimum_ms": minimum_ms,
        "learn_days": learn_days,
        "unlearned_ms": unlearned_ms,
    }
    return history.execute(_EVENTS, parameters).fetchall()
