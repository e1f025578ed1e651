"""Compaction."""

from __future__ import annotations

from pathlib import Path

from broker_core.environment import Disk


def finish_swaps(disk: Disk, directory: Path, names: list[str]) -> None:
    """Finish."""
