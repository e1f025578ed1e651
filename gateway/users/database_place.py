"""Finds the user database that a command means, and never creates one that no platform reads."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from waylog.cli import CommandError
from waylog.config import ConfigError, DataDirectory

#: The beginning of every file of SQLite (https://www.sqlite.org/fileformat.html, 1.3).
_SQLITE: Final = b"SQLite format 3\0"
_PROC: Final = Path("/proc")


def add_users_argument(parser: argparse.ArgumentParser) -> None:
    """Add the options that locate the user database."""
    parser.add_argument(
        "--users",
        type=Path,
        metavar="FILE",
        help="database of users (default: that of --data)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the platform's folder (default: $WAYLOG_DATA, ./data, or that of the one platform "
        "that runs on this machine)",
    )


def check_users(path: Path) -> None:
    """Raise ConfigError if what --users names is something other than a database of users.

    It may be missing or empty. Whether what SQLite wrote is intact is seen when it is opened.
    """
    if path.is_dir():
        inside = DataDirectory(path).users
        also = f", as {inside}" if inside.is_file() else "; --data names the platform's folder"
        raise ConfigError(f"--users {path}: it is a folder; the database's file is expected{also}")
    if path.exists() and not path.is_file():
        raise ConfigError(f"--users {path}: it is no file; the database's file is expected")
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_SQLITE))
    except OSError:
        return  # told when it is opened, or made
    if beginning and beginning != _SQLITE:
        raise ConfigError(
            f"--users {path}: it is not a database; give the users.db of the platform, or its "
            "folder with --data"
        )


def find_users(arguments: argparse.Namespace, *, create: bool = False) -> Path:
    """Return the user database that the options mean.

    Raises CommandError if it does not exist, ConfigError if --users names something else.
    """
    given: Path | None = arguments.users
    if given is not None:
        check_users(given)
    if given is None:
        folder = DataDirectory(arguments.data) if arguments.data else DataDirectory.default()
        given = folder.users
    if create or given.exists():
        return given
    if arguments.users is None and arguments.data is None:
        running = running_users_files()
        if len(running) == 1:
            print(f"users of the platform in {running[0].parent}", file=sys.stderr)
            return running[0]
        if running:
            folders = ", ".join(str(path.parent) for path in running)
            raise CommandError(f"several platforms run here: give --data, one of {folders}")
    raise CommandError(
        f"no platform has its data in {given.parent.resolve()}: {given.name} is not there; give "
        "--data or --users (`waylog user add NAME --create` makes a new database)"
    )


def running_users_files() -> list[Path]:
    """Return the user databases of this account's running gateways, from their command lines."""
    found: set[Path] = set()
    for folder in _PROC.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "gateway" not in words[:5] or "--users" not in words:
                continue
            path = (folder / "cwd").readlink() / words[words.index("--users") + 1]
            if os.access(path, os.R_OK | os.W_OK):
                found.add(path.resolve())
        except (OSError, IndexError):
            continue  # the process has ended, or belongs to another account
    return sorted(found)
