"""The builder of the world index: repeatable results, and the cells of borders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geoservice.reverse.geocoder import Geocoder
from geoservice.world.borders import SEA, Border, build_cells
from geoservice.world.builder import build_world


@pytest.mark.long
def test_the_same_packages_give_the_same_file(world_path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.bin"
    built = build_world(again)
    assert again.read_bytes() == world_path.read_bytes()
    assert built.version == Geocoder.open(again).index_version
    assert list(tmp_path.iterdir()) == [again]


def square(u: int, v: int, size: int) -> np.ndarray:
    corners = [(u, v), (u, v + size), (u + size, v + size), (u + size, v), (u, v)]
    return np.array(corners, dtype=np.int64)


def test_a_country_that_fills_a_cell_needs_no_edges() -> None:
    root = 1 << 26
    cells = build_cells([Border("AA", "A", [square(0, 0, 2 * root)])])
    assert list(cells.cells[:2]) == [-2, -2]
    assert cells.cells[2] == SEA
    assert len(cells.pieces) == 1


def test_a_hole_is_sea_again() -> None:
    root = 1 << 26
    hole = square(root // 4, root // 4, root // 2)[::-1]
    cells = build_cells([Border("AA", "A", [square(0, 0, root), hole])])
    assert cells.cells[0] <= -2 and (-2 - cells.cells[0]) % 2 == 1
    assert cells.leaves.tolist() == [0, 2]
