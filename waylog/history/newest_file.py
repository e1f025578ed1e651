"""When a history in a folder was written last, without reading it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from waylog.history.file_names import is_period_folder

#: Folders whose files are looked at.
_FOLDERS: Final = 3


def newest_file_ms(history: Path) -> int | None:
    """Return the time in ms since 1970 of the newest file; None if there is none to be seen."""
    try:
        folders = [each for each in history.iterdir() if is_period_folder(each.name)]
        # A device that was silent for long adds to earlier months, too: the folders tell.
        folders.sort(key=lambda each: each.stat().st_mtime)
        times = [
            each.stat().st_mtime for folder in folders[-_FOLDERS:] for each in folder.iterdir()
        ]
    except OSError:
        return None
    return int(max(times) * 1000) if times else None
