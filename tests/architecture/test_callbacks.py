"""Modules whose callbacks do not end the process are named as text; each has to exist."""

from __future__ import annotations

import importlib.util

import pytest

from broker_core.server import command
from gateway.process import lifecycle


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *(*command.CALLBACKS_OF, *command.OF_ONE_CLIENT),
            *(*lifecycle.CALLBACKS_OF, *lifecycle.OF_ONE_CLIENT),
        }
    ),
)
def test_a_module_that_is_named_exists(name: str) -> None:
    assert importlib.util.find_spec(name.rstrip(".")) is not None


@pytest.mark.parametrize(
    ("counted", "excepted"),
    [
        (command.CALLBACKS_OF, command.OF_ONE_CLIENT),
        (lifecycle.CALLBACKS_OF, lifecycle.OF_ONE_CLIENT),
    ],
)
def test_what_is_excepted_would_count_otherwise(
    counted: tuple[str, ...], excepted: tuple[str, ...]
) -> None:
    assert [each for each in excepted if not each.startswith(counted)] == []
