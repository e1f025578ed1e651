"""Fixtures of the log's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker_core.log.support import Workbench


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A log with small segments, which rolls every few batches."""
    return Workbench(tmp_path, segment_bytes=600, index_interval_bytes=100)
