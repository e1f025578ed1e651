"""Files of many row groups, read a few at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from waylog.history.row_groups import read_row_groups

ROWS = 200_000
GROUP = 1_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.parquet"
    table = pa.table({"a": range(ROWS), "b": [str(each) for each in range(ROWS)]})
    pq.write_table(table, path, row_group_size=GROUP)
    return path


def test_all_rows_come_in_their_order(file: Path) -> None:
    batches = list(read_row_groups(pq.ParquetFile(file), ["a"], rows=7_500))

    assert pa.Table.from_batches(batches)["a"].to_pylist() == list(range(ROWS))
    # A batch ends at the first row group with which it has 7,500 rows: after eight groups.
    assert {batch.num_rows for batch in batches} == {8_000}


def test_only_the_row_groups_that_are_asked_for_are_read(file: Path) -> None:
    [batch] = read_row_groups(pq.ParquetFile(file), groups=[3, 150])

    assert batch.schema.names == ["a", "b"]
    assert batch["a"].to_pylist() == [*range(3_000, 4_000), *range(150_000, 151_000)]


def test_a_row_group_that_is_large_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    pq.write_table(pa.table({"a": range(ROWS)}), path, row_group_size=ROWS)

    batches = list(read_row_groups(pq.ParquetFile(path), rows=1_000))

    assert max(batch.num_rows for batch in batches) <= 2_000
    assert sum(batch.num_rows for batch in batches) == ROWS


def test_a_file_ten_times_as_large_takes_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for rows in (ROWS // 10, ROWS):
        path = tmp_path / f"{rows}.parquet"
        pq.write_table(pa.table({"a": range(rows)}), path, row_group_size=GROUP)
        parquet = pq.ParquetFile(path)
        before = pa.total_allocated_bytes()
        batches = read_row_groups(parquet, rows=5 * GROUP)
        peaks.append(max(pa.total_allocated_bytes() - before for _ in batches))

    # With Arrow's own iterator it would be ten times as much.
    assert peaks[1] <= 1.5 * peaks[0]
