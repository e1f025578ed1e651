"""Checks of `waylog up` before it starts anything; each mistake is reported at once in one line."""

from __future__ import annotations

import resource
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from waylog.cli import CommandError
from waylog.config import ConfigError, DataDirectory
from waylog.folders import check_folder, reason_of
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.reach import connect_admin

#: The least free space on the disk; with less, the log would refuse records within minutes.
FREE_BYTES_MIN: Final = 100 * 1024 * 1024
#: The files that segments, connections and SQLite take in the smallest platform.
OPEN_FILES_MIN: Final = 512
_MIB: Final = 1024 * 1024


def check_data(data: DataDirectory) -> None:
    """Create the folder if needed, and check its content; raises ConfigError and CommandError."""
    root = data.root
    check_folder(root, "--data")
    free = shutil.disk_usage(root).free
    if free < FREE_BYTES_MIN:
        raise CommandError(
            f"--data {root}: the disk has {free // _MIB} MiB left, and {FREE_BYTES_MIN // _MIB} "
            "are needed: make room, or choose a folder on another disk"
        )
    _check_users(data.users)


def check_limits() -> None:
    """Raise CommandError if a process may hold too few files open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < OPEN_FILES_MIN:
        raise CommandError(
            f"a process may hold {hard} files open here, and {OPEN_FILES_MIN} are needed: raise "
            "the limit (`ulimit -Hn`, LimitNOFILE= in a systemd unit)"
        )


def check_index(index: Path) -> None:
    """Raise ConfigError if there is no such index; the geocoder checks its content."""
    try:
        with index.open("rb"):
            return
    except OSError as error:
        raise ConfigError(
            f"--geo {index}: {reason_of(error)}; `waylog geo import FILE.osm.pbf -o INDEX` makes "
            "one, and without --geo the embedded world is used"
        ) from None


def check_cluster(bootstrap_servers: str) -> None:
    """Raise ConfigError or CommandError unless a Kafka cluster answers there."""
    try:
        connect_admin(bootstrap_servers, client_id="waylog-up")
    except LogUnreachable as error:
        raise CommandError(str(error)) from None


def _check_users(path: Path) -> None:
    if not path.exists():
        return
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2.0)
        try:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        raise CommandError(
            f"{path} is not an intact database of users ({found}); put a copy back, or move it "
            "away and add the users again"
        )
