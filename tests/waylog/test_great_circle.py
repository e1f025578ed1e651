"""Distances on the sphere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.great_circle import distance_m, distances_m


def test_distances_are_those_of_the_sphere() -> None:
    assert distance_m(0, 0, 0, 1) == pytest.approx(111_195, abs=1)
    assert distance_m(0, 179.9, 0, -179.9) == pytest.approx(22_239, abs=1)
    assert distance_m(90, 0, 90, 120) == pytest.approx(0, abs=1e-6)


@given(st.floats(-90, 90), st.floats(-180, 180), st.floats(-90, 90), st.floats(-180, 180))
def test_distances_of_arrays_are_the_same(
    lat: float, lon: float, other_lat: float, other_lon: float
) -> None:
    arrays = (np.array([each]) for each in (lat, lon, other_lat, other_lon))
    away = distance_m(lat, lon, other_lat, other_lon)
    # Near the antipode a last digit is some metres.
    assert distances_m(*arrays)[0] == pytest.approx(away, rel=1e-9, abs=1e-6 if away < 2e7 else 10)
