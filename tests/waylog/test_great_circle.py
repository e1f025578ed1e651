"""Distances on the sphere."""

from __future__ import annotations

import pytest

from waylog.great_circle import distance_m


def test_distances_are_those_of_the_sphere() -> None:
    assert distance_m(0, 0, 0, 1) == pytest.approx(111_195, abs=1)
    assert distance_m(0, 179.9, 0, -179.9) == pytest.approx(22_239, abs=1)
    assert distance_m(90, 0, 90, 120) == pytest.approx(0, abs=1e-6)
