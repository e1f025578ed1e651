"""The page's libraries are fetched once, checked, and found in place afterwards."""

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
    assert f"maplibre-gl-js/blob/v{vendor.MAPLIBRE.version}".encode() in script[:300]
    assert "MapLibre contributors" in (PLACED / vendor.MAPLIBRE.licence).read_text()
    assert b"SwaggerUIBundle" in (PLACED / "swagger-ui-bundle.js").read_bytes()[:1000]
    assert "Apache License" in (PLACED / vendor.SWAGGER_UI.licence).read_text()


@pytest.mark.parametrize("library", vendor.LIBRARIES, ids=str)
def test_versions_are_said_once(library: vendor.Library) -> None:
    assert library.npm[0].rpartition("@")[2] == library.version


@pytest.mark.parametrize("library", vendor.LIBRARIES, ids=str)
def test_compressed_copies_hold_the_same(library: vendor.Library, page_files: None) -> None:
    for name in library.files:
        compressed = (PLACED / f"{name}.gz").read_bytes()
        assert gzip.decompress(compressed) == (PLACED / name).read_bytes()


def test_nothing_is_fetched_when_everything_is_there(complete: Path) -> None:
    said: list[str] = []
    before = {path.name: path.stat().st_mtime_ns for path in complete.iterdir()}
    vendor.install(complete, said.append)
    assert {path.name: path.stat().st_mtime_ns for path in complete.iterdir()} == before
    assert ["in place" in line for line in said] == [True, True]


@pytest.mark.parametrize("name", [name for each in vendor.LIBRARIES for name in each.files])
def test_a_changed_file_is_noticed(complete: Path, name: str) -> None:
    (complete / name).write_bytes(b"something else")
    assert not vendor.is_complete(complete)


@pytest.mark.parametrize("library", vendor.LIBRARIES, ids=str)
def test_a_missing_licence_or_copy_is_noticed(complete: Path, library: vendor.Library) -> None:
    name = next(iter(library.files))
    for missing in (library.licence, f"{name}.gz"):
        content = (complete / missing).read_bytes()
        (complete / missing).unlink()
        assert not vendor.is_complete(complete)
        (complete / missing).write_bytes(content)
    assert vendor.is_complete(complete)
