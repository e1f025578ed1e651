"""Keeps an installation's files private to the account that runs it.

All our processes and their children (a JVM, Spark workers) have one umask, so that only the owner
can read new files. Wider permissions that an earlier version left are removed at a start.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from waylog.config import DataDirectory

logger = logging.getLogger(__name__)

UMASK: Final = 0o077

#: Names that an installation has in its data directory.
_OURS: Final = (
    *("broker", "history", "places", "views", "bridge", "logs", "tmp"),
    *("users.db*", "*.token", "*.key", "*.url", "*.sock"),
    *("lock", "processes.json", "processes.tmp"),
)


def create_private_files() -> None:
    """Make this process, and its children, create files for their owner alone.

    Core files are switched off, since they would contain keys and positions; a user may raise the
    limit.
    """
    os.umask(UMASK)
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def tighten(paths: Iterable[Path]) -> int:
    """Remove the permissions of others from files and folders, and all below; return how many.

    Symbolic links are not followed. Files of other accounts stay as they are, with a warning.
    """
    changed = 0
    refused: list[str] = []
    for path in paths:
        for each, mode in _wide(path):
            try:
                Path(each).chmod(stat.S_IMODE(mode) & ~UMASK)
            except OSError as error:
                refused.append(f"{each}: {error.strerror}")
            else:
                changed += 1
    if changed:
        logger.warning("%d files and folders that others could enter are now private", changed)
    if refused:
        logger.warning(
            "%d files and folders stay open to others, the first is %s", len(refused), refused[0]
        )
    return changed


def _wide(path: Path) -> Iterator[tuple[str, int]]:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(status.st_mode):
        return
    if status.st_mode & UMASK:
        yield str(path), status.st_mode
    if stat.S_ISDIR(status.st_mode):
        yield from _wide_below(str(path))


def _wide_below(folder: str) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    mode = entry.stat(follow_symlinks=False).st_mode
                except FileNotFoundError:
                    continue
                if mode & UMASK and not stat.S_ISLNK(mode):
                    yield entry.path, mode
                if stat.S_ISDIR(mode):
                    yield from _wide_below(entry.path)
    except (FileNotFoundError, PermissionError):
        return


def make_private(data: DataDirectory) -> None:
    """Tighten an installation's files. A data directory that also has other things in it stays as
    it is, with a warning: their permissions are not ours to change.
    """
    names = {path.name: path for path in data.root.iterdir()}
    ours = {name for name in names if any(fnmatch(name, each) for each in _OURS)}
    if ours == set(names):
        tighten([data.root])
    else:
        tighten(names[name] for name in sorted(ours))
        _warn_if_others_may_enter(data.root)


def _warn_if_others_may_enter(folder: Path) -> None:
    if folder.stat().st_mode & UMASK:
        logger.warning(
            "%s may be entered by other accounts of this machine: `chmod 700 %s`, or choose a "
            "folder of its own with --data",
            folder,
            folder,
        )


def temporary_folder(folder: Path) -> dict[str, str]:
    """Create an empty folder for temporary files; return the environment that selects it.

    A process that is killed leaves its files there, and not in a folder that nobody empties.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder.resolve())
    return {"TMPDIR": path, "SPARK_LOCAL_DIRS": path}
