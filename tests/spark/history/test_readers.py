"""One folder is one table: every reader of Parquet sees the same rows, of the same types."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import waylog
from spark.fixes.schema import DAY_MS
from spark.history.compaction import compact_period, plan_period
from spark.history.manifest import ManifestWriter
from tests.spark.history.outdated import write_outdated
from tests.spark.history.test_compaction import DAY as DAY_2026
from tests.spark.history.test_compaction import append, compact, some_fixes
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.history.row_layout import STORED_SCHEMA, to_stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = datetime.date(2026, 1, 1)
MONTH = "2026-01"
LAST_OF_YEAR = DAY_2026 - 1


def rows() -> pa.Table:
    """Return 600 fixes of the two last days of a year and the three first ones of the next."""
    table = some_fixes(600)
    numbers = table["kafka_offset"].to_numpy()
    days = LAST_OF_YEAR - 1 + numbers // 5 % 5
    field = table.schema.field("time")
    times = pa.array(days * DAY_MS + numbers * 1000)
    return table.set_column(table.schema.get_field_index("time"), field, times)


def of_dates(table: pa.Table, first: str, last: str) -> pa.Table:
    dates = to_stored(table)["date"].cast(pa.string())
    return table.filter(pc.and_(pc.greater_equal(dates, first), pc.less_equal(dates, last)))


def landed(out: Path) -> pa.Table:
    append(out, rows())
    return rows()


def packed_days(out: Path) -> pa.Table:
    append(out, rows())
    compact(out, "--keep-days")
    return rows()


def mixed(out: Path) -> pa.Table:
    """A packed month, a packed date, and what came later for all of them."""
    append(out, rows().slice(0, 300))
    compact(out)
    append(out, rows().slice(300, 200))
    assert main(["history", "compact", "--out", str(out), "--before", "2026-01-01"]) == 0
    append(out, rows().slice(500))
    return rows()


def erased(out: Path) -> pa.Table:
    table = mixed(out)
    assert main(["history", "erase", "--out", str(out), "--device", "u/d3", "--yes"]) == 0
    return table.filter(pc.not_equal(table["device"], "u/d3"))


def outdated(out: Path) -> pa.Table:
    """A packed month, a packed date and more of an earlier version, and what came since."""
    first, second, third = (rows().slice(start, 150) for start in (0, 150, 300))
    month = of_dates(first, "2025-12-01", "2025-12-31")
    day = of_dates(second, "2026-01-01", "2026-01-01")
    out.mkdir()
    write_outdated(out, month, day, third)
    append(out, rows().slice(450))
    return pa.concat_tables([month, day, rows().slice(300)])


def upgraded(out: Path) -> pa.Table:
    table = outdated(out)
    compact(out)
    return table


STATES: dict[str, Callable[[Path], pa.Table]] = {
    each.__name__: each for each in (landed, packed_days, mixed, erased, upgraded)
}


@pytest.fixture(scope="module", params=list(STATES))
def state(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, pa.Table]:
    """A history, and the rows that it has as they are stored."""
    out = tmp_path_factory.mktemp("readers") / "history"
    return out, to_stored(STATES[request.param](out))


def by_pyarrow(out: Path) -> list[pa.Table]:
    day = pc.field("date") == DAY
    return [
        pq.read_table(out),
        pq.read_table(out, filters=day),
        pq.read_table(out, filters=pc.field("month") == MONTH),
    ]


def by_dataset(out: Path) -> list[pa.Table]:
    dataset = ds.dataset(out, partitioning="hive")
    day = pc.field("date") == DAY
    month = pc.field("month") == MONTH
    return [dataset.to_table(), dataset.to_table(filter=day), dataset.to_table(filter=month)]


def by_pandas(out: Path) -> list[pa.Table]:
    frame = pd.read_parquet(out)
    begin = pd.Timestamp(DAY, tz="UTC")
    frames = (
        frame,
        frame[(frame["time"] >= begin) & (frame["time"] < begin + pd.Timedelta(days=1))],
        frame[frame["month"] == MONTH],
    )
    return [pa.Table.from_pandas(each, preserve_index=False) for each in frames]


def by_duckdb(out: Path) -> list[pa.Table]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        source = f"from read_parquet('{out}/*=*/*.parquet', hive_partitioning = true)"
        asked = (source, f"{source} where date = '{DAY}'", f"{source} where month = '{MONTH}'")
        return [connection.sql(each).to_arrow_table() for each in asked]


def by_polars(out: Path) -> list[pa.Table]:
    frame = pl.scan_parquet(f"{out}/*=*/*.parquet", hive_partitioning=True)
    asked = (frame, frame.filter(pl.col("date") == DAY), frame.filter(pl.col("month") == MONTH))
    return [each.collect().to_arrow() for each in asked]


def by_history(out: Path) -> list[pa.Table]:
    history = waylog.open_history(str(out))
    after = DAY + datetime.timedelta(days=1)
    return [
        history.table(),
        history.table(start=DAY, stop=after),
        history.table(start=f"{MONTH}-01", stop="2026-02-01"),
    ]


def by_history_duckdb(out: Path) -> list[pa.Table]:
    history = waylog.open_history(str(out))
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        relation = history.duckdb(connection)
        whole, day = relation.to_arrow_table(), relation.filter(f"date = '{DAY}'")
        return [whole, day.to_arrow_table(), relation.filter(f"date >= '{DAY}'").to_arrow_table()]


def by_history_polars(out: Path) -> list[pa.Table]:
    frame = waylog.open_history(str(out)).polars()
    asked = (frame, frame.filter(pl.col("date") == DAY), frame.filter(pl.col("date") >= DAY))
    return [each.collect().to_arrow() for each in asked]


def by_delta(out: Path) -> list[pa.Table]:
    from deltalake import DeltaTable

    assert main(["history", "publish", "--out", str(out)]) == 0
    dataset = DeltaTable(out).to_pyarrow_dataset()
    day, since = pc.field("date") == DAY, pc.field("date") >= DAY
    return [dataset.to_table(), dataset.to_table(filter=day), dataset.to_table(filter=since)]


#: Programs that know nothing of Waylog, and those that follow its manifest.
PLAIN = (by_pyarrow, by_dataset, by_pandas, by_duckdb, by_polars)
READERS = (*PLAIN, by_history, by_history_duckdb, by_history_polars, by_delta)


def checked(table: pa.Table) -> pa.Table:
    """Return what a reader has read in the order of the log, as it is stored; check its types."""
    for name in ("time", "received"):
        kind = table.schema.field(name).type
        assert pa.types.is_timestamp(kind), (name, kind)
        assert kind.tz in {"UTC", "Etc/UTC"}, (name, kind)
    assert table.schema.field("date").type == pa.date32()
    assert table.schema.field("lat").type == table.schema.field("lon").type == pa.float64()
    assert set(table.schema.names) - set(STORED_SCHEMA.names) <= {"month"}
    return in_order(table)


def in_order(table: pa.Table) -> pa.Table:
    """Return the columns of files in the order of the log."""
    own = table.select(STORED_SCHEMA.names).cast(STORED_SCHEMA)
    return own.sort_by("kafka_offset").combine_chunks()


def assert_all_read(read: list[pa.Table], expected: pa.Table) -> None:
    whole, day, month = map(checked, read)
    assert whole.equals(expected)
    assert day.equals(expected.filter(pc.equal(expected["date"], DAY)).combine_chunks())
    assert day.num_rows > 20
    months = pc.equal(pc.strftime(expected["time"], "%Y-%m"), MONTH)
    assert month.equals(expected.filter(months).combine_chunks())


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_every_reader_sees_the_same_table(
    state: tuple[Path, pa.Table], read: Callable[[Path], list[pa.Table]]
) -> None:
    out, expected = state
    assert_all_read(read(out), in_order(expected))


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_while_files_are_exchanged_no_row_is_missing(
    tmp_path: Path, read: Callable[[Path], list[pa.Table]]
) -> None:
    expected = in_order(to_stored(landed(tmp_path)))
    writer = ManifestWriter(str(tmp_path))
    reader = HistoryReader(str(tmp_path))
    tasks = [plan_period(reader, period) for period in reader.periods()]
    writer.commit(map(compact_period, tasks))
    try:
        # The old files are not deleted yet.
        whole, day, _ = map(checked, read(tmp_path))
    finally:
        writer.close()
    times = 2 if read in PLAIN else 1
    assert whole.equals(pa.concat_tables([expected] * times).sort_by("kafka_offset"))
    assert day.num_rows == times * 120


def by_spark(session: SparkSession, out: Path) -> list[pa.Table]:
    frame = session.read.parquet(str(out))
    day, month = frame.where(f"date = '{DAY}'"), frame.where(f"month = '{MONTH}'")
    return [each.toArrow() for each in (frame, day, month)]


def by_history_spark(session: SparkSession, out: Path) -> list[pa.Table]:
    frame = waylog.open_history(str(out)).spark(session)
    return [
        each.toArrow()
        for each in (frame, frame.where(f"date = '{DAY}'"), frame.where(f"date >= '{DAY}'"))
    ]


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [*(pytest.param(name, marks=[] if name == "mixed" else pytest.mark.long) for name in STATES)],
)
def test_spark_sees_the_same_table(name: str, session: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "history"
    expected = in_order(to_stored(STATES[name](out)))
    session.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        for read in (by_spark, by_history_spark):
            tables = [in_utc(table) for table in read(session, out)]
            assert_all_read(tables, expected)
    finally:
        session.conf.unset("spark.sql.session.timeZone")


def in_utc(table: pa.Table) -> pa.Table:
    """Return Spark's timestamps, which name the zone of the session, as those of UTC."""
    fields = [
        field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
