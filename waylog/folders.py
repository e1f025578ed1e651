"""Checks of the folders that options name."""

from __future__ import annotations

import tempfile
from pathlib import Path

from waylog.config import ConfigError
from waylog.process.storage_trouble import is_disk_full


def check_folder(folder: Path, option: str) -> None:
    """Create a folder if needed; raise ConfigError if nothing can be written there.

    A full disk is no reason: there may be room again soon.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        if is_disk_full(error):
            return
        raise ConfigError(
            f"{option} {folder}: nothing can be written there ({reason_of(error)}); choose another "
            "folder, or give this account the right to write"
        ) from None


def reason_of(error: OSError) -> str:
    """Return why a folder or a file cannot be used, in lower case."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "it is a file, not a folder"
    return (error.strerror or str(error)).lower()
