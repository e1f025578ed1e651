"""Areas whose members are only partly in the extract, and the Hilbert curve."""

from __future__ import annotations

import numpy as np
import shapely
from hypothesis import given
from hypothesis import strategies as st

from geoservice.importer.centres import hilbert
from geoservice.importer.partial_areas import assemble, available


def ring(west: float, south: float, east: float, north: float) -> shapely.LineString:
    return shapely.LineString(shapely.box(west, south, east, north).exterior.coords)


def test_a_ring_in_a_ring_is_a_hole() -> None:
    area = assemble([ring(0, 0, 10, 10), ring(2, 2, 4, 4)])
    assert area is not None
    assert area.area == 96


def test_two_halves_make_a_ring() -> None:
    halves = [shapely.LineString([(0, 0), (4, 0), (4, 4)]), shapely.LineString([(4, 4), (0, 0)])]
    area = assemble(halves)
    assert area is not None
    assert area.area == 8


def test_a_ring_with_a_gap_is_no_area() -> None:
    assert assemble([shapely.LineString([(0, 0), (4, 0), (4, 4)])]) is None
    assert assemble([]) is None


def test_rings_that_cross_are_no_area() -> None:
    assert assemble([ring(0, 0, 10, 10), ring(5, 5, 15, 15)]) is None
    assert assemble([shapely.LineString([(0, 0), (4, 4), (4, 0), (0, 4), (0, 0)])]) is None


def test_of_the_members_those_count_that_are_there() -> None:
    assert available([1, 2, 3], {1: "a", 3: "c"}) == ["a", "c"]


@given(st.integers(0, 2**16 - 2), st.integers(0, 2**16 - 2))
def test_neighbours_on_the_curve_are_neighbours_on_the_map(x: int, y: int) -> None:
    columns, rows = np.meshgrid(np.arange(x, x + 2), np.arange(y, y + 2))
    positions = hilbert(columns.ravel().astype(np.uint32), rows.ravel().astype(np.uint32))
    assert len(set(positions.tolist())) == 4


def test_the_curve_visits_all_cells_of_a_square_one_after_the_other() -> None:
    columns, rows = np.meshgrid(np.arange(16, dtype=np.uint32), np.arange(16, dtype=np.uint32))
    positions = hilbert(columns.ravel(), rows.ravel())
    order = np.argsort(positions)
    steps = np.abs(np.diff(columns.ravel()[order].astype(int))) + np.abs(
        np.diff(rows.ravel()[order].astype(int))
    )
    assert sorted(positions.tolist()) == list(range(256))
    assert (steps == 1).all()
