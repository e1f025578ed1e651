"""Finds the user database that a command means, and never creates one that no platform reads."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from waylog.cli import CommandError
from waylog.config import DataDirectory

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


def find_users(arguments: argparse.Namespace, *, create: bool = False) -> Path:
    """Return the user database that the options mean. Raises CommandError if it does not exist."""
    given: Path | None = arguments.users
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
