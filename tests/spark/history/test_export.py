"""Exported fixes equal the stored ones, in each format."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpxpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lxml import etree

from spark.history.export import export
from tests.spark.history.test_compaction import append, compact, some_fixes
from waylog.cli import main
from waylog.history.device_rows import rows_by_device
from waylog.history.history_reader import HistoryReader
from waylog.history.row_layout import HISTORY_SCHEMA, to_rows
from waylog.history.track_writers import CsvWriter, GeoJsonWriter


@pytest.fixture
def history(tmp_path: Path) -> Path:
    out = tmp_path / "history"
    append(out, some_fixes(200))
    compact(out)
    append(out, some_fixes(100, first=200))
    return out


def exported(history: Path, name: str, *words: str) -> bytes:
    file = history.parent / f"track.{name}"
    line = ["history", "export", "--out", str(history), "--format", name, "-o", str(file), *words]
    assert main(line) == 0
    return file.read_bytes()


def expected(device: str = "u/d3") -> list[dict[str, Any]]:
    rows = [row for row in some_fixes(300).to_pylist() if row["device"] == device]
    return sorted(rows, key=lambda row: row["time"])


def test_gpx_has_a_segment_a_day(history: Path) -> None:
    [track] = gpxpy.parse(exported(history, "gpx", "--device", "u/d3").decode()).tracks
    assert track.name == "u/d3"
    assert len(track.segments) == 2
    points = [point for segment in track.segments for point in segment.points]
    assert [round(point.latitude * 1e7) for point in points] == [
        round(row["lat"] * 1e7) for row in expected()
    ]
    assert [round(point.longitude * 1e7) for point in points] == [
        round(row["lon"] * 1e7) for row in expected()
    ]
    assert [round(point.time.timestamp() * 1000) for point in points if point.time] == [
        row["time"] for row in expected()
    ]


def test_geojson_kml_and_csv_have_every_fix(history: Path) -> None:
    collection = json.loads(exported(history, "geojson", "--device", "u/d3"))
    assert [feature["geometry"]["type"] for feature in collection["features"]] == ["LineString"] * 2
    points = [each for one in collection["features"] for each in one["geometry"]["coordinates"]]
    assert len(points) == len(expected())
    root = etree.fromstring(exported(history, "kml", "--device", "u/d3"))
    names = {"gx": "http://www.google.com/kml/ext/2.2", "k": "http://www.opengis.net/kml/2.2"}
    assert len(root.findall(".//gx:coord", names)) == len(expected())
    assert len(root.findall(".//k:when", names)) == len(expected())
    rows = list(csv.DictReader(io.StringIO(exported(history, "csv", "--device", "u/d3").decode())))
    assert [row["id"] for row in rows] == [row["id"] for row in expected()]


def test_parquet_has_all_members_of_all_devices_of_a_user(history: Path) -> None:
    exported(history, "parquet", "--user", "u")
    table = pq.read_table(history.parent / "track.parquet")
    assert to_rows(table.sort_by("kafka_offset")).equals(some_fixes(300))


def test_a_stretch_of_time_is_exported_alone(history: Path) -> None:
    rows = expected()
    last = rows[10]["time"]
    collection = json.loads(
        exported(history, "geojson", "--device", "u/d3", "--to", "2026-01-01T00:01:48Z")
    )
    assert last == 1_767_225_708_000
    assert len(collection["features"][0]["geometry"]["coordinates"]) == 11
    nothing = exported(history, "geojson", "--device", "u/d3", "--from", "2027-01-01")
    assert json.loads(nothing)["features"] == []


def test_devices_without_a_fix_in_the_time_are_not_counted(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(history, "csv", "--device", "u/d3", "--to", "2025-12-31")
    assert "0 fixes of 0 devices" in capsys.readouterr().err


def test_a_device_that_nobody_knows_is_named_and_nothing_is_written(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = history.parent / "track.csv"
    file.write_bytes(b"of before")
    words = ["--device", "u/d3", "--device", "u/never-seen", "--format", "csv", "-o", str(file)]
    assert main(["history", "export", "--out", str(history), *words]) == 1
    assert "the history knows no device u/never-seen" in capsys.readouterr().err
    assert file.read_bytes() == b"of before"


@pytest.mark.parametrize("rows_at_once", [1, 35, 10**6])
def test_devices_that_are_read_together_or_apart_give_the_same_file(
    history: Path, rows_at_once: int
) -> None:
    reader = HistoryReader(str(history))
    names = [f"u/d{number}" for number in (4, 3, 1, 0)]
    rows = rows_by_device(reader, names, ())
    assert list(rows) == names
    assert rows == {each: len(expected(each)) for each in names}
    stream = io.BytesIO()
    writer = CsvWriter(stream)
    done: list[int] = []
    count, with_fixes = export(
        reader, rows, writer, 0, 2**62, rows_at_once=rows_at_once, advance=done.append
    )
    written = list(csv.DictReader(io.StringIO(stream.getvalue().decode())))
    assert [row["id"] for row in written] == [row["id"] for each in names for row in expected(each)]
    assert (count, with_fixes) == (len(written), len(names))
    assert done == [len(expected(each)) for each in names]


def test_all_devices_that_fit_are_read_in_one_pass(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = HistoryReader(str(history))
    rows = rows_by_device(reader, (), ("u",))
    assert len(rows) == 5
    opened: list[str] = []
    open_input = reader.storage.open_input

    def counted(path: str) -> Any:
        opened.append(path)
        return open_input(path)

    monkeypatch.setattr(reader.storage, "open_input", counted)
    export(reader, rows, CsvWriter(io.BytesIO()), 0, 2**62)
    assert sorted(opened) == sorted(file.path for file in reader.files())


def test_geojson_is_cut_at_the_antimeridian() -> None:
    fixes = some_fixes(5).to_pylist()
    for fix, lon in zip(fixes, (179.5, 179.9, -179.9, -179.8, 180.0), strict=True):
        fix["lon"] = lon
    stream = io.BytesIO()
    writer = GeoJsonWriter(stream)
    writer.begin("u/d1")
    writer.day(pa.Table.from_pylist(fixes, HISTORY_SCHEMA))
    writer.end()
    writer.close()
    features = json.loads(stream.getvalue())["features"]
    assert [
        ([each[0] for each in _line(feature)], len(feature["properties"]["coordTimes"]))
        for feature in features
    ] == [([179.5, 179.9], 2), ([-179.9, -179.8], 2), ([180.0], 1)]
    assert [each["geometry"]["type"] for each in features] == ["LineString", "LineString", "Point"]


def _line(feature: dict[str, Any]) -> list[list[float]]:
    geometry = feature["geometry"]
    coordinates: list[Any] = geometry["coordinates"]
    return [coordinates] if geometry["type"] == "Point" else coordinates


def test_a_file_has_its_name_once_it_is_complete(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = history.parent / "track.geojson"
    exported(history, "geojson", "--device", "u/d3")
    complete = file.read_bytes()

    def full(_self: GeoJsonWriter, _rows: object) -> None:
        assert file.read_bytes() == complete
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(GeoJsonWriter, "day", full)
    words = ["--device", "u/d4", "--format", "geojson", "-o", str(file)]
    assert main(["history", "export", "--out", str(history), *words]) == 1
    assert file.read_bytes() == complete
    assert [each.name for each in history.parent.iterdir() if "part" in each.name] == []


def test_what_is_no_file_is_written_to_as_it_is(history: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as threads:
        read = threads.submit(pipe.read_bytes)
        words = ["--device", "u/d3", "--format", "csv", "-o", str(pipe)]
        assert main(["history", "export", "--out", str(history), *words]) == 0
        assert read.result(60) == exported(history, "csv", "--device", "u/d3")
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name a --device"),
        (["--user", "nobody"], "knows no device of nobody"),
        (["--device", "u/d3", "--from", "noon"], "a time is"),
    ],
)
def test_a_mistake_is_explained(
    history: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "export", "--out", str(history), *words]) == 1
    assert reason in capsys.readouterr().err
