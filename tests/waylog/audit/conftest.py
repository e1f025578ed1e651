"""A broker with the platform's topics for each test, and nothing in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waylog.audit.running import AuditedLog


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedLog]:
    """Yield a log, beside which a history may be written."""
    # The default history is that of the data folder, which is none here.
    monkeypatch.setenv("WAYLOG_DATA", str(tmp_path / "data"))
    running = AuditedLog(tmp_path)
    yield running
    running.close()
