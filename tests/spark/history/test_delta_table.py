"""The history as a Delta table: another library reads the current files at every version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="pip install 'waylog[delta]'")

import duckdb
from deltalake import DeltaTable

from tests.spark.history.test_compaction import append as append_rows
from tests.spark.history.test_compaction import compact, some_fixes
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.history.row_layout import STORED_TIME

IDS = "select id, device, lat, kafka_offset from rows order by 4"


def publish(out: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    capsys.readouterr()
    assert main(["history", "publish", "--out", str(out), "--json"]) == 0
    published: dict[str, int] = json.loads(capsys.readouterr().out)
    return published


def rows_of_table(out: Path, version: int | None = None) -> list[tuple[object, ...]]:
    table = DeltaTable(out, version=version)
    with duckdb.connect() as connection:
        connection.register("rows", table.to_pyarrow_dataset())
        return connection.execute(IDS).fetchall()


def expected(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [
        (row["id"], row["device"], pytest.approx(row["lat"], abs=1e-7), row["kafka_offset"])
        for row in rows
    ]


def test_a_table_names_what_counts_before_and_after_packing_and_erasing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "history", some_fixes(400)
    rows = table.to_pylist()
    append_rows(out, table.slice(0, 200))
    first = publish(out, capsys)
    assert (first["version"], first["removed"]) == (0, 0)
    assert rows_of_table(out) == expected(rows[:200])
    append_rows(out, table.slice(200))
    second = publish(out, capsys)
    assert second["added"] == second["files"] - first["files"]
    assert rows_of_table(out) == expected(rows)
    # Without changes there is no new version.
    assert publish(out, capsys)["version"] == second["version"]
    compact(out)
    assert rows_of_table(out) == expected(rows)
    named = {path.partition("history/")[2] for path in DeltaTable(out).file_uris()}
    assert named == {file.path for file in HistoryReader(str(out)).files()}
    assert main(["history", "erase", "--out", str(out), "--device", "u/d3", "--yes"]) == 0
    assert rows_of_table(out) == expected([row for row in rows if row["device"] != "u/d3"])


def test_the_table_says_of_which_time_a_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = tmp_path / "history", some_fixes(5_000)
    append_rows(out, table)
    compact(out)  # into one file with several row groups
    publish(out, capsys)
    said = DeltaTable(out).get_add_actions(flatten=True)
    columns = {name: said[name].to_pylist() for name in ("num_records", "min.time", "max.time")}
    times = table["time"].cast(STORED_TIME).to_pylist()
    assert columns["num_records"] == [5_000]
    assert (min(columns["min.time"]), max(columns["max.time"])) == (min(times), max(times))


def test_where_no_table_can_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "publish", "--out", str(tmp_path)]) == 1
    assert "there is no history" in capsys.readouterr().err
