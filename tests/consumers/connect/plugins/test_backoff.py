"""Pauses between attempts."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.connect.configuration.definitions import ConfigDef
from consumers.connect.plugins.backoff import Backoff, backoff_keys


@pytest.mark.parametrize(
    ("properties", "pauses"),
    [
        ({}, [1, 2, 4, 8, 16, 32, 60, 60]),
        ({"retry.backoff.ms": "10", "retry.backoff.max.ms": "35"}, [0.01, 0.02, 0.035, 0.035]),
        ({"retry.backoff.ms": "900", "retry.backoff.max.ms": "100"}, [0.9, 0.9]),
    ],
)
def test_pauses_double_up_to_the_longest(properties: dict[str, Any], pauses: list[float]) -> None:
    backoff = Backoff.of(ConfigDef(backoff_keys("Delivery", 4)).parse(properties))
    assert [backoff.pause_s(failures) for failures in range(1, len(pauses) + 1)] == pauses
    assert backoff.pause_s(10**9) == pauses[-1]
