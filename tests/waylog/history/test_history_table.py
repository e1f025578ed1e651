"""`waylog.open_history`: a history as one table, whatever lies in its folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import waylog
from spark.history.compaction import compact_period, plan_period
from spark.history.manifest import ManifestWriter
from tests.spark.history.test_compaction import append, compact, some_fixes
from waylog.config import ConfigError
from waylog.history.history_reader import HistoryReader, HistoryUnreadable
from waylog.history.row_layout import STORED_SCHEMA, to_stored

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 fixes of five devices and two days, three quarters of them packed."""
    out = tmp_path_factory.mktemp("table") / "history"
    append(out, some_fixes(300))
    compact(out)
    append(out, some_fixes(100, first=300))
    return out


def offsets(table: pa.Table) -> list[int]:
    return sorted(table["kafka_offset"].to_pylist())


def test_some_columns_devices_and_times_are_read(history: Path) -> None:
    table = waylog.open_history(str(history))
    assert table.schema == STORED_SCHEMA
    expected = to_stored(some_fixes(400))
    assert table.table().sort_by("kafka_offset").equals(expected)
    some = table.table(["date", "lat", "kafka_offset"], ["u/d3", "u/d1", "u/nobody"])
    assert some.column_names == ["date", "lat", "kafka_offset"]
    mine = pc.is_in(expected["device"], pa.array(["u/d1", "u/d3"]))
    assert some.sort_by("kafka_offset").equals(expected.select(some.column_names).filter(mine))
    assert table.table(devices=[]).num_rows == 0
    # The begin is inclusive, the end is not.
    first, last = some_fixes(400)["time"][101].as_py(), some_fixes(400)["time"][199].as_py()
    begin, end = (datetime.fromtimestamp(each / 1000, UTC) for each in (first, last))
    within = list(range(101, 199, 2))
    assert offsets(table.table(start=begin, stop=end)) == within
    frame = table.pandas(["date", "kafka_offset"], None, begin, end)
    assert sorted(frame["kafka_offset"]) == within
    assert set(frame["date"].dt.strftime("%Y-%m-%d")) == {"2026-01-02"}


@pytest.mark.parametrize(
    "start",
    [
        *(date(2026, 1, 2), "2026-01-02", "2026-01-02T00:00:00Z", "2026-01-02T01:00+01:00"),
        datetime(2026, 1, 2, tzinfo=UTC),
        datetime(2026, 1, 1, 22, tzinfo=timezone(timedelta(hours=-2))),
    ],
)
def test_a_day_can_be_said_in_many_ways(history: Path, start: Any) -> None:
    table = waylog.open_history(str(history)).table(["kafka_offset"], start=start)
    assert offsets(table) == list(range(1, 400, 2))


def test_what_cannot_be_asked_is_explained(history: Path, tmp_path: Path) -> None:
    table = waylog.open_history(str(history))
    with pytest.raises(ValueError, match=r"no column lat_e7; there are id, .*, date"):
        table.table(["lat_e7"])
    with pytest.raises(ValueError, match=r"of which time zone, such as 2026-01-02T00:00:00\+00:00"):
        table.table(start=datetime(2026, 1, 2))
    with pytest.raises(ValueError, match="yesterday"):
        table.files("yesterday")
    with pytest.raises(ConfigError, match="gopher"):
        waylog.open_history("gopher://nowhere")
    broken = tmp_path / "month=2026-01"
    broken.mkdir()
    (broken / f"2026-01-01-location-0-{0:020d}-{9:020d}.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(HistoryUnreadable, match="Parquet"):
        waylog.open_history(str(tmp_path)).table()


def test_a_track_has_each_point_once(history: Path) -> None:
    table = waylog.open_history(str(history))
    track = table.track("u/d3")
    own = table.table(track.column_names, ["u/d3"]).sort_by("time")
    assert track.equals(own)
    assert track.num_rows == 80
    last = own["time"][39].as_py()
    assert table.track("u/d3", stop=last).equals(own.slice(0, 39))
    midnight = NOON - timedelta(hours=12)
    part = table.track("u/d3", midnight, NOON)
    assert part.num_rows == 40
    assert part.equals(own.filter(pc.greater_equal(own["time"], pa.scalar(midnight))))
    assert table.track("u/nobody").num_rows == 0


def test_files_of_a_time_are_named(history: Path) -> None:
    table = waylog.open_history(str(history))
    reader = HistoryReader(str(history))
    assert table.files() == [f"{history}/{file.path}" for file in reader.files()]
    assert [Path(path).name[:10] for path in table.files("2026-02-01")] == []
    # A packed month, and what came late for the day.
    packed, late = (Path(path).name for path in table.files("2026-01-02", "2026-01-03"))
    assert (packed[:10], late[:10]) == ("compacted-", "2026-01-02")
    assert table.dataset().count_rows() == 400


def test_an_empty_history_is_an_empty_table(tmp_path: Path) -> None:
    table = waylog.open_history(str(tmp_path))
    assert table.files() == []
    assert table.table().equals(STORED_SCHEMA.empty_table())
    assert table.track("u/d1").num_rows == len(table.pandas()) == 0
    assert table.duckdb().columns == table.polars().collect().columns == STORED_SCHEMA.names


def test_a_folder_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HistoryUnreadable, match=f"^{tmp_path}/nowhere: there is no such folder; "):
        waylog.open_history("nowhere")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(HistoryUnreadable, match=f"^{tmp_path}/file: "):
        waylog.open_history(str(tmp_path / "file"))


def test_what_is_packed_after_opening_is_found_again(tmp_path: Path) -> None:
    append(tmp_path, some_fixes(100))
    table = waylog.open_history(str(tmp_path))
    before = table.dataset()
    compact(tmp_path)
    assert table.table().num_rows == table.dataset().count_rows() == 100
    with pytest.raises(FileNotFoundError):
        before.to_table()


class PackedMeanwhile(Sequence[str]):
    """Names of devices; a compaction runs when they are first counted."""

    def __init__(self, out: Path, *devices: str) -> None:
        self._out: Path | None = out
        self._devices = devices

    def __len__(self) -> int:
        out, self._out = self._out, None
        if out is not None:
            compact(out)
        return len(self._devices)

    def __getitem__(self, index: Any) -> Any:
        return self._devices[index]


def test_what_is_packed_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    append(tmp_path, some_fixes(100))
    devices = PackedMeanwhile(tmp_path, "u/d1", "u/d2")
    assert waylog.open_history(str(tmp_path)).table(devices=devices).num_rows == 40


def test_while_files_are_exchanged_each_row_counts_once(tmp_path: Path) -> None:
    append(tmp_path, some_fixes(100, days=1))
    writer = ManifestWriter(str(tmp_path))
    writer.commit([compact_period(plan_period(HistoryReader(str(tmp_path)), "2026-01-01"))])
    # The files that were packed are still there; programs that list the folder see them too.
    assert len(list(tmp_path.glob("month=*/*.parquet"))) == 2
    table = waylog.open_history(str(tmp_path))
    assert table.table().num_rows == table.dataset().count_rows() == 100
    assert table.duckdb().aggregate("count(*)").fetchall() == [(100,)]
    writer.delete_superseded()
    writer.close()
    assert table.table().num_rows == 100


def test_the_package_alone_loads_no_library() -> None:
    code = "import waylog, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow", "numpy", "msgspec"} & set(done.stdout.split())
