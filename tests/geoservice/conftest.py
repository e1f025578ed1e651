"""The index of the world, built once for all tests of the geocoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoservice.reverse import Geocoder
from geoservice.store import WORLD_PATH, IndexFile
from geoservice.world import build_world


@pytest.fixture(scope="session")
def world_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index that the set-up built; another where it did not run."""
    if WORLD_PATH.exists():
        return WORLD_PATH
    path: Path = tmp_path_factory.mktemp("world") / "world.bin"
    build_world(path)
    return path


@pytest.fixture(scope="session")
def index(world_path: Path) -> IndexFile:
    return IndexFile(world_path)


@pytest.fixture(scope="session")
def geocoder(index: IndexFile) -> Geocoder:
    return Geocoder(index)
