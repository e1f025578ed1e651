"""Starts processes of which a step fails, and leaves none behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planted.planted import PlantedProcess, StartPlanted


@pytest.fixture
def start_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartPlanted]:
    """Start a `waylog` command that fails in a step; it is killed after the test."""
    started: list[PlantedProcess] = []

    def start(step: str, *words: str) -> PlantedProcess:
        started.append(PlantedProcess(monkeypatch, tmp_path, step, *words))
        return started[-1]

    yield start
    for each in started:
        each.kill()
