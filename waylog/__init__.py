"""Waylog, a location platform. `open_history` reads what it has written to Parquet."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waylog.history.history_table import HistoryTable

__all__ = ["open_history"]


def open_history(url: str) -> HistoryTable:
    """Open the history at a folder or URL (`s3://`, `webhdfs://`) as a table.

    A history that has no fixes yet is an empty table. Raises waylog.config.ConfigError for a URL
    that is none, HistoryUnreadable for a folder that is missing or cannot be read.
    """
    # By name, as commands are: all others import from this folder, and it imports none of them.
    # Nor does what wants only the package's name load pyarrow.
    table: HistoryTable = import_module("waylog.history.history_table").HistoryTable(url)
    return table
