"""Analyses over all devices, and the notebook that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import h3
import pyarrow as pa
import pytest

from spark.fleet.analyses import dates_between, gap_audit, heat_map, heat_map_geojson, quality
from tests.spark.history.test_compaction import append, compact, some_fixes
from tests.spark.running import make_fix
from waylog.cli import main
from waylog.history.history_reader import HistoryReader
from waylog.messages import Fix

ROOT = Path(__file__).resolve().parents[3]
START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC
DAY_MS = 86_400_000


def table_of(fixes: list[Fix]) -> pa.Table:
    schema = some_fixes(0).schema
    rows = [
        {
            name: getattr(fix, name)
            for name in schema.names
            if hasattr(fix, name) and name != "attributes"
        }
        | {"kafka_partition": 0, "kafka_offset": number}
        for number, fix in enumerate(fixes)
    ]
    return some_fixes(0).from_pylist(rows, schema=schema)


@pytest.fixture(params=["as it came in", "packed"])
def reader(tmp_path: Path, request: pytest.FixtureRequest) -> HistoryReader:
    fixes = [make_fix("a/p", START_MS + minute * 60_000) for minute in range(60)]
    # Silent for an hour, then for two days.
    fixes += [make_fix("a/p", START_MS + (120 + minute) * 60_000) for minute in range(60)]
    fixes += [make_fix("a/p", START_MS + 3 * DAY_MS + minute * 60_000) for minute in range(60)]
    for minute in range(10):
        fix = make_fix("b/p", START_MS + minute * 1000, 48.2, 16.4)
        fix.accuracy = None if minute else 150.0
        fix.received += 2 * 3_600_000 if minute == 5 else 0
        fixes.append(fix)
    fixes.append(make_fix("b/p", START_MS + 9000, 0.0, 0.0))
    out = tmp_path / "history"
    append(out, table_of(fixes))
    if request.param == "packed":
        compact(out)
    return HistoryReader(str(out))


def test_the_heat_map_counts_fixes_and_devices(reader: HistoryReader) -> None:
    cells = heat_map(reader, reader.dates())
    found = {cell.cell: (cell.fixes, cell.devices) for cell in cells}
    assert found[h3.latlng_to_cell(52.5, 13.4, 9)] == (180, 1)
    assert found[h3.latlng_to_cell(48.2, 16.4, 9)] == (10, 1)
    assert cells[0].fixes == 180
    collection = heat_map_geojson(cells)
    assert isinstance(collection["features"], list)
    assert len(collection["features"]) == 3
    assert heat_map_geojson(cells, devices_min=2)["features"] == []


def test_gaps_are_found_within_days_and_between_them(reader: HistoryReader) -> None:
    days = [day for day in gap_audit(reader, reader.dates()) if day.device == "a/p"]
    assert [(day.date, day.fixes, day.expected) for day in days] == [
        ("2026-01-01", 120, 180),
        ("2026-01-02", 0, 1440),
        ("2026-01-03", 0, 1440),
        ("2026-01-04", 60, 60),
    ]
    assert days[0].missing == 60
    assert days[0].longest_gap_s == 61 * 60


def test_the_quality_of_a_day_is_told(reader: HistoryReader) -> None:
    [first, last] = quality(reader, reader.dates())
    assert first.date == "2026-01-01"
    assert (first.fixes, first.devices, first.repeated) == (131, 2, 1)
    assert (first.inaccurate, first.late, first.without_accuracy, first.nowhere) == (1, 1, 9, 1)
    assert (last.fixes, last.devices, last.repeated) == (60, 1, 0)
    assert dates_between(reader, "2026-01-02", "2026-01-03") == []


def test_the_commands_print_what_programs_can_read(
    reader: HistoryReader, capsys: pytest.CaptureFixture[str]
) -> None:
    history = ["--history", reader.storage.path]
    assert main(["fleet", "heatmap", *history]) == 0
    assert len(json.loads(capsys.readouterr().out)["features"]) == 3
    assert main(["fleet", "gaps", *history, "--missing", "1000", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["date"] for line in lines] == ["2026-01-02", "2026-01-03"]
    assert main(["fleet", "quality", *history, "--from", "2026-01-04"]) == 0
    assert "2026-01-04" in capsys.readouterr().out
    assert main(["fleet", "gaps", *history, "--missing", "100000"]) == 0
    assert "Nothing to tell" in capsys.readouterr().out


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "examples/fleet.ipynb").read_text(encoding="utf-8"))
    out = tmp_path / "history"
    append(out, some_fixes(300))
    monkeypatch.setenv("WAYLOG_HISTORY", str(out))
    names: dict[str, object] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    for cell in cells:
        assert cell["outputs"] == []
        exec(compile("".join(cell["source"]), "examples/fleet.ipynb", "exec"), names)
