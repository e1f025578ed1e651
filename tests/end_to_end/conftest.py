"""A fixture for platforms that are stopped after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.running import Platform, start_platform


@pytest.fixture
def platform_starter(tmp_path: Path) -> Iterator[Callable[..., Platform]]:
    """Give a function that starts platforms; `data` is the test's folder unless given."""
    started: list[Platform] = []

    def start(*options: str, data: Path | None = None) -> Platform:
        platform = start_platform(data or tmp_path / "data", *options)
        started.append(platform)
        return platform

    yield start
    for platform in started:
        platform.stop()
        assert platform.process.stdout is not None
        platform.process.stdout.close()
