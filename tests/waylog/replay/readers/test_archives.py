"""Exports of many files: archives, archives in archives, folders."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.waylog.replay.readers.fit_file import fit_file
from tests.waylog.replay.readers.test_more_formats import NOON, NOON_MS, photo
from waylog.cli import CommandError
from waylog.replay.player import read_files
from waylog.replay.readers.recorded import RecordedFix, Skipped

GPX = (
    '<gpx><trk><trkseg><trkpt lat="{}" lon="2"><time>2025-06-01T10:00:00Z</time></trkpt>'
    "</trkseg></trk></gpx>"
)


def archive(**members: bytes) -> bytes:
    """Return a zip archive; `__` in a name stands for a slash, `_` before the last part a dot."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            path = name.replace("__", "/")
            head, _, suffix = path.rpartition("_")
            packed.writestr(f"{head}.{suffix}", content)
    return file.getvalue()


def replayed(path: Path, device: str | None = None) -> tuple[list[RecordedFix], Skipped, list[str]]:
    skipped: Skipped = Counter()
    damage: list[str] = []
    fixes = read_files([path], device=device, limit=None, skipped=skipped, damage=damage)
    return list(fixes), skipped, damage


def written(folder: Path, content: bytes, name: str = "export.zip") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_all_activities_of_an_archive_are_one_device(tmp_path: Path) -> None:
    fit = fit_file((NOON, 3.0, 2, 0, 70, 1))
    path = written(
        tmp_path,
        archive(
            activities__1_gpx=GPX.format(1).encode(),
            activities__2_gpx_gz=gzip.compress(GPX.format(2).encode()),
            activities__3_fit_gz=gzip.compress(fit),
            activities_csv=b"Activity ID,Activity Date\n1,today\n",
            media__1_jpg=photo(),
            profile_html=b"<html></html>",
        ),
    )
    fixes, skipped, damage = replayed(path)
    assert [(each.device, round(each.lat, 2)) for each in fixes] == [
        ("export", 1),
        ("export", 2),
        ("export", 3),
        ("photos", -33.91),
    ]
    assert skipped == {
        "a file that is no track (.csv)": 1,
        "a file that is no track (.html)": 1,
    }
    assert not damage
    fixes, *_ = replayed(path, "watch")
    assert {each.device for each in fixes} == {"watch"}


def test_archives_in_an_archive_are_read(tmp_path: Path) -> None:
    inner = archive(a_fit=fit_file((NOON, 1, 2, 0, 70, 1)), b_fit=fit_file((NOON, 2, 2, 0, 70, 1)))
    fixes, *_ = replayed(
        written(tmp_path, archive(DI_CONNECT__Uploaded__part1_zip=inner, DI_CONNECT__x_json=b"{}"))
    )
    assert [round(each.lat) for each in fixes] == [1, 2]
    assert {each.device for each in fixes} == {"export"}


def test_archives_without_an_end_are_refused(tmp_path: Path) -> None:
    content = archive(a_gpx=GPX.format(1).encode(), b_txt=b"")
    for _ in range(4):
        content = archive(next_zip=content, b_txt=b"")
    with pytest.raises(CommandError, match="archives in archives"):
        replayed(written(tmp_path, content))


def test_steps_of_a_journey_are_read(tmp_path: Path) -> None:
    locations = {"locations": [{"lat": 1.5, "lon": 2.5, "time": NOON_MS / 1000}]}
    path = written(
        tmp_path,
        archive(
            trip__norway_1__locations_json=json.dumps(locations).encode(),
            trip__norway_1__trip_json=b'{"name":"Norway"}',
        ),
    )
    fixes, skipped, _ = replayed(path)
    assert [(each.lat, each.lon, each.time) for each in fixes] == [(1.5, 2.5, NOON_MS)]
    assert skipped == {"a file that is no track (.json)": 1}


def test_a_damaged_file_costs_no_other(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        archive(
            a_gpx=b"<gpx><trk>", b_gpx=GPX.format(2).encode(), c_gpx=GPX.format(3).encode()[:-9]
        ),
    )
    fixes, _, damage = replayed(path)
    assert [each.lat for each in fixes] == [2, 3]
    assert len(damage) == 2
    assert "export.zip/a.gpx" in damage[0]
    assert "what follows could not be read" in damage[1]


def test_a_damaged_archive_is_told(tmp_path: Path) -> None:
    content = archive(a_gpx=GPX.format(1).encode(), b_gpx=GPX.format(2).encode())
    with pytest.raises(CommandError, match=r"export\.zip"):
        replayed(written(tmp_path, content[:-20]))


def test_a_folder_is_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "walks"
    (folder / "2024").mkdir(parents=True)
    written(folder, GPX.format(2).encode(), "b.gpx")
    written(folder, GPX.format(1).encode(), "a.gpx")
    written(folder / "2024", archive(x_gpx=GPX.format(3).encode(), y_txt=b""), "old.zip")
    written(folder, b"", "empty.txt")
    fixes, skipped, _ = replayed(folder)
    assert [(each.device, each.lat) for each in fixes] == [
        ("walks", 1),
        ("walks", 2),
        ("walks", 3),
    ]
    assert skipped == {"a file that is no track (.txt)": 2}


def test_a_kmz_is_one_track_with_its_pictures(tmp_path: Path) -> None:
    kml = (
        b'<kml xmlns="http://www.opengis.net/kml/2.2"><Placemark><TimeStamp>'
        b"<when>2025-06-01T10:00:00Z</when></TimeStamp><Point><coordinates>2,1</coordinates>"
        b"</Point></Placemark></kml>"
    )
    path = written(tmp_path, archive(doc_kml=kml, files__icon_png=b"png"), "hike.kmz")
    fixes, skipped, _ = replayed(path)
    assert [(each.device, each.lat) for each in fixes] == [("hike", 1)]
    assert not skipped
