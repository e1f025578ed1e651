"""The map library is fetched once, checked, and found in place afterwards."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gateway.web import vendor

PLACED = vendor.FOLDER / "vendor"


@pytest.fixture
def complete(tmp_path: Path, page_files: None) -> Path:
    """Return a copy of the fetched files."""
    for path in PLACED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_set_up_has_fetched_the_pinned_files(page_files: None) -> None:
    assert vendor.is_complete(PLACED)
    script = (PLACED / "maplibre-gl.js").read_bytes()
    assert f"maplibre-gl-js/blob/v{vendor.MAPLIBRE_VERSION}".encode() in script[:300]
    assert "MapLibre contributors" in (PLACED / vendor.LICENCE).read_text()


def test_compressed_copies_hold_the_same(page_files: None) -> None:
    for name in vendor.FILES_SHA256:
        compressed = (PLACED / f"{name}.gz").read_bytes()
        assert gzip.decompress(compressed) == (PLACED / name).read_bytes()


def test_nothing_is_fetched_when_everything_is_there(complete: Path) -> None:
    said: list[str] = []
    before = {path.name: path.stat().st_mtime_ns for path in complete.iterdir()}
    vendor.install(complete, said.append)
    assert {path.name: path.stat().st_mtime_ns for path in complete.iterdir()} == before
    assert "in place" in said[0]


def test_a_changed_file_is_noticed(complete: Path) -> None:
    (complete / "maplibre-gl.js").write_bytes(b"something else")
    assert not vendor.is_complete(complete)


def test_a_missing_licence_is_noticed(complete: Path) -> None:
    (complete / vendor.LICENCE).unlink()
    assert not vendor.is_complete(complete)
