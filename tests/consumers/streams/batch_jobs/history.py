"""Fixes in Parquet as the log has them, to the last decimal, and as batch jobs read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark.fixes.schema import LogRecord, decode_records
from waylog.history.row_layout import STORED_TIME
from waylog.messages import Fix, encode

RADIUS_M = 6_371_008.8

_STORED = """
create table stored as
select
    *,
    case when time - received > 300_000 or time < 946_684_800_000 then received else time end
        as moment
from (
    select * replace (
        epoch_ms(time) as time, epoch_ms(received) as received,
        round(lat, $decimals) as lat, round(lon, $decimals) as lon
    )
    from read_parquet($files, hive_partitioning = false)
);

-- Of each device those that are newer than all before them.
create table taken as
select * exclude (newest)
from (
    select *, max(moment) over (
        partition by device order by kafka_offset
        rows between unbounded preceding and 1 preceding
    ) as newest
    from stored
)
where newest is null or moment > newest;

create macro vector(lat, lon) as [
    cos(radians(lat)) * cos(radians(lon)), cos(radians(lat)) * sin(radians(lon)), sin(radians(lat))
];
create macro metres(lat, lon, other_lat, other_lon) as 2 * 6_371_008.8 * asin(
    least(1.0, list_distance(vector(lat, lon), vector(other_lat, other_lon)) / 2)
);
"""


def write_history(folder: Path, fixes: Iterable[Fix], partition_of: Callable[[bytes], int]) -> None:
    """Write fixes as rows of the history, a file for each partition."""
    records: dict[int, list[LogRecord]] = {}
    for fix in fixes:
        key = fix.device.encode()
        own = records.setdefault(partition_of(key), [])
        own.append(LogRecord(len(own), key, encode(fix)))
    folder.mkdir()
    for partition, own in records.items():
        rows, unreadable = decode_records(partition, own)
        assert not unreadable
        table = pa.Table.from_batches([rows])
        for name in ("time", "received"):
            number = table.schema.get_field_index(name)
            table = table.set_column(number, name, table[name].cast(STORED_TIME))
        pq.write_table(table, folder / f"location-{partition}-0-{len(own) - 1}.parquet")


def open_history(folder: Path, decimals: int = 15) -> duckdb.DuckDBPyConnection:
    """Return a database with the fixes of a history, positions rounded to that many decimals.

    Table `stored` has all of them; `moment` is the event time. Table `taken` has those that are
    newer than all fixes of the device before. There is a macro for distances in metres.
    """
    connection = duckdb.connect()
    for statement in _STORED.split(";"):
        files = {"files": f"{folder}/**/*.parquet", "decimals": decimals}
        parameters = files if "$files" in statement else None
        if statement.strip():
            connection.execute(statement, parameters)
    return connection


def chords_m(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    other_lat: NDArray[np.float64] | float,
    other_lon: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Return the distances along great circles, by the chords between vectors."""
    one, other = _vectors(lat, lon), _vectors(other_lat, other_lon)
    chords = np.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))
    away: NDArray[np.float64] = 2 * RADIUS_M * np.arcsin(np.minimum(1.0, chords / 2))
    return away


def _vectors(
    lat: NDArray[np.float64] | float, lon: NDArray[np.float64] | float
) -> tuple[NDArray[np.float64], ...]:
    phi, turn = np.radians(lat), np.radians(lon)
    return np.cos(phi) * np.cos(turn), np.cos(phi) * np.sin(turn), np.sin(phi)
