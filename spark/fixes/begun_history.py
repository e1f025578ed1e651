"""A history that commands read: one with files, or one that a job has begun."""

from __future__ import annotations

from spark.fixes.staging import FOLDER
from waylog.cli import CommandError
from waylog.history.history_reader import ERASED, HistoryReader
from waylog.history.storage import LOCK


def open_history(url: str) -> HistoryReader:
    """Open a history that has begun; raises CommandError for any other."""
    reader = HistoryReader(url)
    if not has_begun(reader):
        missing = "" if reader.storage.is_there() else ", and no such folder"
        raise CommandError(
            f"{reader.storage.place}: there is no history{missing}; `waylog history run` writes it"
        )
    return reader


def has_begun(reader: HistoryReader) -> bool:
    """Return whether there is a history, even one without fixes."""
    if reader.files():
        return True
    storage = reader.storage
    return storage.exists(ERASED) or storage.exists(LOCK) or storage.is_there(FOLDER)
