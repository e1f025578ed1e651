"""Compacted days hold all rows, whatever interrupts the compaction."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.fixes.schema import DAY_MS
from spark.fixes.staging import StagedFile, land
from spark.history.compaction import CompactionTask, compact_period, plan_period, z_order
from spark.history.files import HistoryFiles
from spark.history.manifest import (
    ManifestWriter,
    many_small_files,
    months_to_pack,
    needs_compaction,
    superseded,
)
from spark.places.job import write_places
from spark.runtime.tasks import LocalEngine
from tests.consumers.running import await_condition
from tests.spark.places.test_job import table_of, tables_of, write_history
from tests.spark.synthetic import make_person
from waylog.cli import main
from waylog.history.file_names import OffsetSpan
from waylog.history.history_reader import HistoryReader, merge_spans
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.storage import Storage

DAY = 20_454  # 2026-01-01


def some_fixes(count: int, *, first: int = 0, partition: int = 0, days: int = 2) -> pa.Table:
    """Return records first..first+count-1 of a partition, of five devices, on some days."""
    numbers = range(first, first + count)
    return pa.Table.from_pylist(
        [
            {
                "id": f"{partition:04x}{number:020x}",
                "device": f"u/d{number % 5}",
                "user": "u",
                "lat": round(47 + number % 5 + number * 1e-5, 7),
                "lon": round(9.5 + number * 1e-5, 7),
                "time": (DAY + number % days) * DAY_MS + number * 1000,
                "received": number,
                "accuracy": None if number % 3 else 5.0,
                "attributes": '{"a":1}',
                "kafka_partition": partition,
                "kafka_offset": number,
            }
            for number in numbers
        ],
        schema=HISTORY_SCHEMA,
    )


def append(out: Path, table: pa.Table) -> None:
    storage = Storage(str(out))
    files = HistoryFiles(storage)
    files.open()
    offsets = table["kafka_offset"].to_numpy()
    landed = land(table.to_batches(), storage, int(offsets[0]), int(offsets[-1]) + 1)
    files.commit([StagedFile(**row) for batch in landed for row in batch.to_pylist()])


def place_in_log(row: dict[str, Any]) -> tuple[int, int]:
    return row["kafka_partition"], row["kafka_offset"]


def rows_of(out: Path) -> list[dict[str, Any]]:
    reader = HistoryReader(str(out))
    rows = []
    for date in reader.periods():
        for batch in reader.scan(date):
            rows += batch.select(HISTORY_SCHEMA.names).to_pylist()
    return sorted(rows, key=place_in_log)


def compact(out: Path, *words: str) -> None:
    assert main(["history", "compact", "--out", str(out), "--all", *words]) == 0


def count_everywhere(out: Path) -> int:
    """Return the number of rows for a reader of folders; each (partition, offset) is unique."""
    with duckdb.connect() as connection:
        where = "distinct (kafka_partition, kafka_offset)"
        [(rows, distinct)] = connection.sql(
            f"select count(*), count({where}) from read_parquet('{out}/*/*.parquet')"
        ).fetchall()
    assert rows == distinct
    return int(rows)


@pytest.mark.parametrize(
    ("words", "periods"), [((), ["2026-01"]), (("--keep-days",), ["2026-01-01", "2026-01-02"])]
)
def test_days_are_packed_and_packed_again_when_fixes_come_late(
    tmp_path: Path, words: Sequence[str], periods: list[str]
) -> None:
    first, second, late = some_fixes(500), some_fixes(300, partition=1), some_fixes(50, first=500)
    append(tmp_path, first)
    append(tmp_path, second)
    expected = [*first.to_pylist(), *second.to_pylist()]
    assert rows_of(tmp_path) == expected
    compact(tmp_path, *words)
    assert rows_of(tmp_path) == expected
    assert count_everywhere(tmp_path) == 800
    assert all("compacted-" in path.name for path in tmp_path.glob("month=*/*"))
    assert needs_compaction(HistoryReader(str(tmp_path)), "9999-99-99") == []
    append(tmp_path, late)
    expected = sorted(
        [*expected, *late.to_pylist()],
        key=lambda row: (row["kafka_partition"], row["kafka_offset"]),
    )
    assert rows_of(tmp_path) == expected
    reader = HistoryReader(str(tmp_path))
    assert needs_compaction(reader, "9999-99-99") == periods
    assert needs_compaction(reader, "2026-01-02") == periods[:1]
    assert reader.dates() == ["2026-01-01", "2026-01-02"]
    compact(tmp_path, *words)
    assert rows_of(tmp_path) == expected
    reader.refresh()
    assert reader.periods() == periods
    assert len(list(tmp_path.glob("month=2026-01/*"))) == len(periods)


def test_months_that_are_over_are_packed_as_far_as_they_are_small(tmp_path: Path) -> None:
    append(tmp_path, some_fixes(400, days=3))
    append(tmp_path, some_fixes(100, first=400, days=1))
    compact(tmp_path, "--keep-days")
    reader = HistoryReader(str(tmp_path))
    total = sum(file.bytes for file in reader.files())
    assert months_to_pack(reader, "2026-01-31", total) == []
    assert months_to_pack(reader, "2026-02-01", total - 1) == []
    assert months_to_pack(reader, "2026-02-01", total) == ["2026-01"]
    compact(tmp_path)
    reader.refresh()
    assert reader.periods() == ["2026-01"]
    assert reader.periods("2026-01-31") == ["2026-01"]
    assert reader.periods("2026-02-01") == reader.periods(None, "2025-12-31") == []
    assert reader.files("2026-01-02") == reader.files()


def test_a_day_that_is_not_over_is_packed_when_it_has_many_small_files(tmp_path: Path) -> None:
    for start in range(0, 60, 10):
        append(tmp_path, some_fixes(10, first=start, days=1))
    reader = HistoryReader(str(tmp_path))
    assert many_small_files(reader, "2026-01-01", 6) == []
    assert many_small_files(reader, "2026-01-01", 5) == ["2026-01-01"]
    assert many_small_files(reader, "2026-01-02", 5) == []
    words = ["history", "compact", "--out", str(tmp_path), "--before", "2026-01-01"]
    assert main([*words, "--files-max", "5"]) == 0
    assert len(HistoryReader(str(tmp_path)).files()) == 1
    assert rows_of(tmp_path) == some_fixes(60, days=1).to_pylist()


def test_what_still_gets_fixes_is_left_alone(tmp_path: Path) -> None:
    append(tmp_path, some_fixes(10, days=1))
    compact(tmp_path, "--settled", "1")
    reader = HistoryReader(str(tmp_path))
    [file] = reader.files()
    assert file.span is not None
    two_hours_ago = time.time() - 7200
    os.utime(tmp_path / file.path, (two_hours_ago, two_hours_ago))
    compact(tmp_path, "--settled", "1")
    reader.refresh()
    assert [file.span for file in reader.files()] == [None]


def test_a_packed_month_knows_what_it_has_of_each_day(tmp_path: Path) -> None:
    # In one range of offsets, the second day's file appears later than the first day's.
    table = some_fixes(200)
    first, second = (table.filter(pc.equal(day_of(table), day)) for day in (DAY, DAY + 1))
    append(tmp_path, first)
    append(tmp_path, some_fixes(100, first=200, days=2))
    compact(tmp_path)
    assert HistoryReader(str(tmp_path)).periods() == ["2026-01"]
    append(tmp_path, second)
    expected = some_fixes(300).to_pylist()
    assert rows_of(tmp_path) == expected
    compact(tmp_path)
    assert rows_of(tmp_path) == expected
    assert HistoryReader(str(tmp_path)).periods() == ["2026-01"]


def day_of(table: pa.Table) -> pa.ChunkedArray:
    return pc.divide(table["time"], DAY_MS)


@pytest.mark.parametrize(("sort_rows", "file_bytes"), [(150, 1 << 30), (150, 1), (10**6, 1)])
def test_a_day_of_any_size_comes_out_the_same(
    tmp_path: Path, sort_rows: int, file_bytes: int
) -> None:
    table = some_fixes(1000, days=1)
    append(tmp_path, table)
    writer = ManifestWriter(str(tmp_path))
    task = plan_period(HistoryReader(str(tmp_path)), "2026-01-01")
    result = compact_period(task._replace(sort_rows=sort_rows, file_bytes=file_bytes))
    # Programs that list folders do not see them yet.
    assert count_everywhere(tmp_path) == 1000
    assert superseded(Storage(str(tmp_path))) == []
    writer.commit([result])
    assert len(superseded(Storage(str(tmp_path)))) == 1
    writer.delete_superseded()
    writer.close()
    assert rows_of(tmp_path) == table.to_pylist()
    # The rows of each device are contiguous and sorted by time.
    keys = []
    for file in HistoryReader(str(tmp_path)).files():
        rows = pq.read_table(tmp_path / file.path, columns=["device", "time"], partitioning=None)
        keys += list(zip(*(column.to_pylist() for column in rows), strict=True))
    pieces = [device for device, _ in groupby(keys, key=lambda key: key[0])]
    assert len(pieces) == len(set(pieces)) == 5
    assert all(a[0] != b[0] or a[1] <= b[1] for a, b in pairwise(keys))


def test_a_fix_that_was_sent_again_is_kept_once(tmp_path: Path) -> None:
    table = some_fixes(100)
    append(tmp_path, table)
    again = table.set_column(
        HISTORY_SCHEMA.get_field_index("kafka_offset"),
        HISTORY_SCHEMA.field("kafka_offset"),
        pa.array(np.arange(100, 200)),
    )
    storage = Storage(str(tmp_path))
    # The window of recent ids is empty.
    files = HistoryFiles(storage, recent_ids=0)
    files.open()
    landed = land(again.to_batches(), storage, 100, 200)
    files.commit([StagedFile(**row) for batch in landed for row in batch.to_pylist()])
    assert len(rows_of(tmp_path)) == 200
    compact(tmp_path)
    assert rows_of(tmp_path) == table.to_pylist()


def test_the_writer_goes_on_after_a_compaction(tmp_path: Path) -> None:
    table = some_fixes(400)
    append(tmp_path, table.slice(0, 200))
    compact(tmp_path)
    # Killed before Spark recorded the batch: it is repeated, with fixes that a device sent again.
    append(tmp_path, table.slice(100, 200))
    repeated = table.slice(50, 100).set_column(
        HISTORY_SCHEMA.get_field_index("kafka_offset"),
        HISTORY_SCHEMA.field("kafka_offset"),
        pa.array(np.arange(300, 400)),
    )
    append(tmp_path, repeated)
    assert rows_of(tmp_path) == table.slice(0, 300).to_pylist()
    files = HistoryFiles(Storage(str(tmp_path)))
    files.open()
    assert files.next_offsets() == {0: 300}


class Killed(BaseException):
    """A stand-in for SIGKILL."""


def mortal_storage(monkeypatch: pytest.MonkeyPatch, changes: int) -> None:
    """Let the process die after some changes of files."""
    left = changes

    def mortal(name: str) -> None:
        method = getattr(Storage, name)

        def change(*arguments: object) -> object:
            nonlocal left
            if left <= 0:
                raise Killed
            left -= 1
            return method(*arguments)

        monkeypatch.setattr(Storage, name, change)

    for name in ("rename", "delete", "open_output"):
        mortal(name)


@pytest.mark.parametrize("changes", range(14))
def test_killed_anywhere_a_compaction_neither_loses_nor_doubles(
    tmp_path: Path, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = some_fixes(300)
    append(tmp_path, table.slice(0, 200))
    compact(tmp_path)
    append(tmp_path, table.slice(200))
    mortal_storage(monkeypatch, changes)
    with suppress(Killed):
        compact(tmp_path)
    monkeypatch.undo()
    assert rows_of(tmp_path) == table.to_pylist()
    compact(tmp_path)
    assert rows_of(tmp_path) == table.to_pylist()
    assert count_everywhere(tmp_path) == 300
    assert superseded(Storage(str(tmp_path))) == []


def test_places_do_not_mind_a_compaction(tmp_path: Path) -> None:
    people = {f"u{seed}/p": make_person(seed, days=8) for seed in range(3)}
    table = table_of(people)
    history, out, whole = tmp_path / "history", tmp_path / "places", tmp_path / "whole"
    cuts = [0, table.num_rows // 3, table.num_rows // 2, table.num_rows]
    for start, end in pairwise(cuts):
        write_history(history, table, start, end)
        if start:
            compact(history)
        assert write_places(LocalEngine(1), str(history), str(out)).rows == end - start
    assert write_places(LocalEngine(1), str(history), str(whole)).rows == table.num_rows
    assert tables_of(out) == tables_of(whole)


def test_a_track_is_read_from_both_kinds_of_files(tmp_path: Path) -> None:
    append(tmp_path, some_fixes(500))
    reader = HistoryReader(str(tmp_path))
    everything = reader.track("u/d3", 0, 2**60)
    assert [row.time for row in everything] == sorted(
        row["time"] for row in some_fixes(500).to_pylist() if row["device"] == "u/d3"
    )
    compact(tmp_path)
    append(tmp_path, some_fixes(100, first=500))
    # A reader that listed files before the compaction finds the current files.
    assert set(everything) < set(reader.track("u/d3", 0, 2**60))
    reader.refresh()
    assert len(reader.track("u/d3", 0, 2**60)) == 120
    begin, end = everything[3].time, everything[10].time
    part = reader.track("u/d3", begin, end)
    assert (part[0], part[-1]) == (everything[3], everything[10])
    assert reader.track("u/nobody", 0, 2**60) == []


def test_files_that_count_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "files", "--out", str(tmp_path)]) == 1
    assert "there is no history" in capsys.readouterr().err
    append(tmp_path, some_fixes(100))
    assert main(["history", "files", "--out", str(tmp_path), "--date", "2026-01-02"]) == 0
    name = f"2026-01-02-location-0-{0:020d}-{99:020d}.parquet"
    assert capsys.readouterr().out == f"{tmp_path}/month=2026-01/{name}\n"
    assert main(["history", "compact", "--out", str(tmp_path), "--before", "yesterday"]) == 1


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 5)), max_size=12))
def test_merged_spans_have_the_same_offsets(spans: Sequence[tuple[int, int, int]]) -> None:
    own = [OffsetSpan(partition, first, first + length) for partition, first, length in spans]

    def offsets(spans: Sequence[OffsetSpan]) -> set[tuple[int, int]]:
        return {
            (span.partition, offset)
            for span in spans
            for offset in range(span.first, span.last + 1)
        }

    merged = merge_spans(own)
    assert offsets(merged) == offsets(own)
    assert sum(span.last - span.first + 1 for span in merged) == len(offsets(own))


def test_neighbours_on_the_curve_are_neighbours_on_earth() -> None:
    lat, lon = np.meshgrid(np.arange(8), np.arange(8))
    cell = 1 << 11
    curve = z_order(lat.ravel() * cell + 475_000_000, lon.ravel() * cell + 95_000_000)
    assert len(np.unique(curve)) == 64
    assert z_order(np.array([-900_000_000]), np.array([-1_800_000_000])).tolist() == [0]


def test_a_compaction_of_nothing_is_nothing(tmp_path: Path) -> None:
    task = CompactionTask(str(tmp_path), "2026-01-01", [], {})
    assert compact_period(task).compacted.files == []


_COMPACT = """
import sys
from spark.history.compaction import compact_period, plan_period
from waylog.history.history_reader import HistoryReader

task = plan_period(HistoryReader(sys.argv[1]), "2026-01-01")._replace(sort_rows=1000)
while True:
    compact_period(task)
"""


def test_a_killed_compaction_leaves_no_positions_outside_of_the_history(tmp_path: Path) -> None:
    history, elsewhere = tmp_path / "history", tmp_path / "elsewhere"
    history.mkdir()
    elsewhere.mkdir()
    append(history, some_fixes(20_000, days=1))
    process = subprocess.Popen(
        [sys.executable, "-c", _COMPACT, str(history)],
        env=os.environ | {"TMPDIR": str(elsewhere), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        opened = Path(f"/proc/{process.pid}/fd")
        # Its scratch files are open now, and it has something in them.
        await_condition(lambda: _bytes_of_scratch(opened) > 0, 60, "scratch files")
    finally:
        process.kill()
        process.wait()
    assert list(elsewhere.iterdir()) == []
    left = {each.name for each in (history / "_compacting").iterdir()}
    assert all(name.endswith(".tmp") for name in left)
    ManifestWriter(str(history)).close()
    assert not (history / "_compacting").exists() or not list((history / "_compacting").iterdir())


def _bytes_of_scratch(opened: Path) -> int:
    """Return the size of the open files without a name of a process."""
    found = 0
    with suppress(OSError):  # it closes them meanwhile
        for each in opened.iterdir():
            with suppress(OSError):
                if "(deleted)" in str(each.readlink()):
                    found += each.stat().st_size
    return found
