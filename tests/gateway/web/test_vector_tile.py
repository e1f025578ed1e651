"""The encoder against the examples of the specification, and against an independent reader."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.web.vector_tile import Layer, encode_tile
from tests.tile_reader import read_tile

COORDINATES = st.tuples(st.integers(-500, 5000), st.integers(-500, 5000))


def decoded(layer: Layer) -> list[dict[str, Any]]:
    """Return the features of the only layer of a tile."""
    features: list[dict[str, Any]] = read_tile(encode_tile([layer]))[layer.name]["features"]
    return features


def test_a_point_has_the_commands_of_the_specification() -> None:
    layer = Layer("points", 4096)
    layer.add_point(25, 17, {})
    assert decoded(layer)[0]["commands"] == [9, 50, 34]  # section 4.3.5.1


def test_a_line_has_the_commands_of_the_specification() -> None:
    layer = Layer("lines", 4096)
    layer.add_lines([np.array([[2.0, 2], [2, 10], [10, 10]])], {})
    assert decoded(layer)[0]["commands"] == [9, 4, 4, 18, 0, 16, 16, 0]  # section 4.3.5.3


def test_a_polygon_has_the_commands_of_the_specification() -> None:
    layer = Layer("areas", 4096)
    ring = np.array([[3.0, 6], [8, 12], [20, 34], [3, 6]])
    layer.add_polygons([[ring]], {})
    assert decoded(layer)[0]["commands"] == [9, 6, 12, 18, 10, 12, 24, 44, 15]  # section 4.3.5.5


def test_rings_are_wound_as_readers_expect_whatever_came_in() -> None:
    outer = np.array([[0.0, 0], [0, 100], [100, 100], [100, 0], [0, 0]])
    hole = np.array([[20.0, 20], [40, 20], [40, 40], [20, 40], [20, 20]])
    for turned_outer in (outer, outer[::-1]):
        for turned_hole in (hole, hole[::-1]):
            layer = Layer("areas", 4096)
            layer.add_polygons([[turned_outer, turned_hole]], {})
            areas = [round(area) for area in decoded(layer)[0]["areas"]]
            assert areas == [10000, -400]


def test_what_shrinks_to_nothing_is_left_out() -> None:
    layer = Layer("areas", 4096)
    layer.add_polygons([[np.array([[1.0, 1], [1.2, 1.1], [1.1, 1.2], [1, 1]])]], {})
    layer.add_lines([np.array([[1.0, 1], [1.2, 1.1]])], {})
    assert layer.feature_count == 0
    assert encode_tile([layer]) == b""


def test_members_come_back_as_text_and_integers() -> None:
    layer = Layer("towns", 4096)
    layer.add_point(1, 2, {"name": "Iași", "rank": 3})
    layer.add_point(3, 4, {"name": "Łódź", "rank": -3})
    assert [feature["members"] for feature in decoded(layer)] == [
        {"name": "Iași", "rank": 3},
        {"name": "Łódź", "rank": -3},
    ]


@given(st.lists(COORDINATES, min_size=2, max_size=40))
def test_any_line_comes_back(points: list[tuple[int, int]]) -> None:
    layer = Layer("lines", 4096)
    layer.add_lines([np.array(points, dtype=np.float64)], {})
    without_repeats = [
        point for index, point in enumerate(points) if not index or point != points[index - 1]
    ]
    if len(without_repeats) < 2:
        assert layer.feature_count == 0
    else:
        assert decoded(layer)[0]["parts"] == [without_repeats]
