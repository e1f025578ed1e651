"""A folder that an earlier version has written: our own programs read it, and packing renews it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import waylog
from spark.fixes.schema import id_hashes
from spark.history.files import HistoryFiles
from spark.history.manifest import superseded
from spark.places.job import write_places
from spark.runtime.tasks import LocalEngine
from tests.spark.history.outdated import write_outdated
from tests.spark.history.test_compaction import Killed, append, compact, mortal_storage, some_fixes
from tests.spark.history.test_readers import (
    READERS,
    by_delta,
    by_history,
    by_history_duckdb,
    by_history_polars,
    in_order,
    of_dates,
    outdated,
)
from tests.spark.places.test_job import table_of, tables_of, write_history
from tests.spark.synthetic import make_person
from waylog.audit.history_rows import HistoryRows
from waylog.cli import main
from waylog.history.file_names import is_outdated
from waylog.history.history_reader import HistoryReader, HistoryUnreadable
from waylog.history.row_layout import HISTORY_SCHEMA, to_stored
from waylog.history.storage import Storage
from waylog.kafka.ranges.log_ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def old(tmp_path: Path) -> tuple[Path, pa.Table]:
    """A history of both layouts, and its rows in the order of the log."""
    out = tmp_path / "history"
    return out, outdated(out).sort_by("kafka_offset").combine_chunks()


def scanned(out: Path) -> pa.Table:
    reader = HistoryReader(str(out))
    batches = [batch for period in reader.periods() for batch in reader.scan(period)]
    tables = [pa.Table.from_batches([each]).select(HISTORY_SCHEMA.names) for each in batches]
    return pa.concat_tables(tables).sort_by("kafka_offset").combine_chunks()


def test_our_readers_read_both_layouts(old: tuple[Path, pa.Table]) -> None:
    out, rows = old
    assert scanned(out).equals(rows)
    table = waylog.open_history(str(out)).table()
    assert in_order(table).equals(in_order(to_stored(rows)))
    reader = HistoryReader(str(out))
    own = rows.filter(pc.equal(rows["device"], "u/d3")).sort_by("time")
    track = reader.track_table("u/d3", 0, 1 << 60)
    names = ["time", "lat", "lon"]
    assert track.select(names).to_pylist() == own.select(names).to_pylist()
    told = HistoryRows(str(out))
    told.refresh()
    offsets = rows["kafka_offset"].to_pylist()
    there = told.offsets({0: Range(0, 600)})
    assert [each for each in range(600) if there.has(0, each)] == offsets
    received = {fact.offset for fact in told.rows_received(100, 500, {0: 600}, None)}
    assert received == {each for each in offsets if 100 <= each < 500}
    found = told.rows_at({0: Range(0, 600)}, None)
    facts = {(fact.offset, fact.time, fact.received) for fact in found}
    columns = (rows[name].to_pylist() for name in ("kafka_offset", "time", "received"))
    assert facts == set(zip(*columns, strict=True))


def test_exports_do_not_depend_on_the_layout(
    old: tuple[Path, pa.Table], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = old
    files = []
    for layout in ("old", "new"):
        for form in ("csv", "geojson", "parquet"):
            file = tmp_path / f"{layout}.{form}"
            words = ["--user", "u", "--format", form, "-o", str(file)]
            assert main(["history", "export", "--out", str(out), *words]) == 0
            files.append(file.read_bytes())
        compact(out)
    assert files[:3] == files[3:]


def test_places_do_not_depend_on_the_layout(tmp_path: Path) -> None:
    table = table_of({f"u{seed}/p": make_person(seed, days=8) for seed in range(2)})
    dates = to_stored(table)["date"].to_pylist()
    month = of_dates(table, str(dates[0]), str(dates[table.num_rows // 2]))
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    write_outdated(old, month, None, table.slice(month.num_rows))
    write_history(new, table)
    for history in (old, new):
        write_places(LocalEngine(1), str(history), f"{history}-places")
    assert tables_of(tmp_path / "old-places") == tables_of(tmp_path / "new-places")


def test_a_batch_that_is_repeated_by_the_new_version_adds_nothing(
    old: tuple[Path, pa.Table],
) -> None:
    out, rows = old
    files = HistoryFiles(Storage(str(out)))
    files.open()
    assert files.next_offsets() == {0: 600}
    append(out, rows.slice(rows.num_rows - 200))
    assert scanned(out).equals(rows)
    # The ids of old files are known: what a device sends again is left out.
    again = rows.slice(rows.num_rows - 100).set_column(
        HISTORY_SCHEMA.get_field_index("kafka_offset"),
        HISTORY_SCHEMA.field("kafka_offset"),
        pa.array(range(600, 700), pa.int64()),
    )
    assert len(set(id_hashes(again["id"].combine_chunks()).tolist())) == 100
    append(out, again)
    assert scanned(out).equals(rows)


def test_an_erasure_does_not_wait_for_packing(old: tuple[Path, pa.Table]) -> None:
    out, rows = old
    assert main(["history", "erase", "--out", str(out), "--device", "u/d3", "--yes"]) == 0
    left = rows.filter(pc.not_equal(rows["device"], "u/d3"))
    assert scanned(out).equals(left.combine_chunks())
    compact(out)
    assert scanned(out).equals(left.combine_chunks())


@pytest.mark.parametrize("settled", [(), ("--settled", "24", "--before", "2025-12-31")])
def test_packing_renews_all_files_at_once(
    old: tuple[Path, pa.Table], settled: tuple[str, ...]
) -> None:
    out, rows = old
    (out / "date=2026-01-01" / "not-ours.txt").touch()
    compact(out, *settled)
    assert scanned(out).equals(rows)
    assert not any(is_outdated(file.path) for file in HistoryReader(str(out)).files())
    assert [path.name for path in out.glob("date=*")] == ["date=2026-01-01"]


@pytest.mark.parametrize("changes", range(0, 40, 3))
def test_killed_anywhere_while_it_renews_nothing_is_lost_or_doubled(
    old: tuple[Path, pa.Table], changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rows = old
    mortal_storage(monkeypatch, changes)
    with suppress(Killed):
        compact(out)
    monkeypatch.undo()
    assert scanned(out).equals(rows)
    compact(out)
    assert scanned(out).equals(rows)
    assert superseded(Storage(str(out))) == []
    assert in_order(by_history(out)[0]).equals(in_order(to_stored(rows)))


OTHERS = [read for read in READERS if read not in {by_history, by_delta}]


@pytest.mark.parametrize("read", OTHERS, ids=lambda read: read.__name__)
def test_other_programs_refuse_a_folder_of_two_layouts(
    old: tuple[Path, pa.Table], read: Callable[[Path], list[pa.Table]]
) -> None:
    out, _ = old
    if read in {by_history_duckdb, by_history_polars}:
        with pytest.raises(HistoryUnreadable, match=r"7 files .* `waylog history compact`"):
            read(out)
    else:
        with pytest.raises((pa.ArrowException, duckdb.Error, pl.exceptions.PolarsError)):
            read(out)


def test_a_delta_table_waits_until_all_files_are_renewed(
    old: tuple[Path, pa.Table], capsys: pytest.CaptureFixture[str]
) -> None:
    deltalake = pytest.importorskip("deltalake")
    from deltalake.transaction import AddAction, create_table_with_add_actions

    out, rows = old
    # As an earlier version has published it.
    columns = {"id": pa.string(), "lat": pa.float64(), "lat_e7": pa.int32(), "time": pa.int64()}
    schema = deltalake.Schema.from_arrow(pa.schema(columns))
    files = [
        AddAction(file.path, file.bytes, {}, 0, True, "{}")
        for file in HistoryReader(str(out)).files()
        if is_outdated(file.path)
    ]
    create_table_with_add_actions(str(out), schema, files)
    assert main(["history", "publish", "--out", str(out)]) == 1
    assert "waylog history compact" in capsys.readouterr().err
    compact(out)
    table = deltalake.DeltaTable(out).to_pyarrow_table()
    assert in_order(table).equals(in_order(to_stored(rows)))
    append(out, some_fixes(10, first=600))
    assert main(["history", "publish", "--out", str(out)]) == 0
    assert deltalake.DeltaTable(out).to_pyarrow_table().num_rows == rows.num_rows + 10


@pytest.mark.spark
@pytest.mark.long
def test_spark_refuses_a_folder_of_two_layouts(
    old: tuple[Path, pa.Table], session: SparkSession
) -> None:
    with pytest.raises(Exception, match="CONFLICTING_PARTITION_COLUMN_NAMES"):
        session.read.parquet(str(old[0])).count()
    compact(old[0])
    assert session.read.parquet(str(old[0])).count() == old[1].num_rows
