"""Folders that options name: checks, and making what is in them durable."""

from __future__ import annotations

import os
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


def sync_folder(folder: Path) -> None:
    """Make creations, renames and removals in a folder survive a power cut; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
