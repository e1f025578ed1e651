"""Tiles of a small invented harbour, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.geoservice.tiles.harbour_extract import harbour_archive, write_harbour


@pytest.fixture(scope="session")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an extract."""
    return write_harbour(tmp_path_factory.mktemp("harbour") / "harbour.osm.pbf")


@pytest.fixture(scope="session")
def harbour_tiles(harbour: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of its tiles."""
    return harbour_archive(tmp_path_factory.mktemp("tiles"))
