"""Fixtures for all tests of the geocoder, among them the world index, which is built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoservice.index.store import WORLD_PATH, IndexFile
from geoservice.reverse.geocoder import Geocoder
from geoservice.world.builder import build_world
from tests.geoservice.small_extract import write_extract


@pytest.fixture(scope="session")
def world_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the index that the set-up built, or build one if there is none."""
    if WORLD_PATH.exists():
        return WORLD_PATH
    path: Path = tmp_path_factory.mktemp("world") / "world.bin"
    build_world(path)
    return path


@pytest.fixture(scope="session")
def street_path(world_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a street index of a small town."""
    from geoservice.importer.build import build_index

    folder: Path = tmp_path_factory.mktemp("streets")
    write_extract(folder / "small.osm.pbf")
    build_index([folder / "small.osm.pbf"], folder / "small.geo", world=world_path)
    return folder / "small.geo"


@pytest.fixture(scope="session")
def index(world_path: Path) -> IndexFile:
    return IndexFile(world_path)


@pytest.fixture(scope="session")
def geocoder(index: IndexFile) -> Geocoder:
    return Geocoder(index)
