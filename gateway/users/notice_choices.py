"""Which notices users want, and how far topic `event` was told. Stored in the user database."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Mapping
from typing import Final

#: Kinds of notices: the ways into a fence, out of it and the stay in it, and the other events.
FENCE_KINDS: Final = ("enter", "leave", "dwell")
KINDS: Final = (*FENCE_KINDS, "silence", "speeding", "meeting")

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS notice_choices (
    user TEXT NOT NULL REFERENCES users (name),
    device TEXT NOT NULL,
    kinds TEXT NOT NULL,
    PRIMARY KEY (user, device)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS notice_choices_of_device ON notice_choices (device);
CREATE TABLE IF NOT EXISTS notices_told (
    partition INTEGER PRIMARY KEY,
    next_offset INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

#: Devices for which a user may choose.
_CHOICES_MAX: Final = 1_000


class TooManyChoices(ValueError):
    """A user has chosen for as many devices as one may."""


class NoticeChoices:
    """The choices of all users; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock
        connection.executescript(SCHEMA)

    def of(self, user: str, device: str) -> frozenset[str] | None:
        """Return the kinds that a user has chosen for a device; None: none were chosen."""
        with self._lock:
            row = self._connection.execute(
                "SELECT kinds FROM notice_choices WHERE user = ? AND device = ?", (user, device)
            ).fetchone()
        return None if row is None else _kinds(row[0])

    def of_all(self, device: str) -> dict[str, frozenset[str]]:
        """Return what users have chosen for a device, by user."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT user, kinds FROM notice_choices WHERE device = ?", (device,)
            ).fetchall()
        return {user: _kinds(kinds) for user, kinds in rows}

    def choose(self, user: str, device: str, kinds: Collection[str] | None) -> None:
        """Set the kinds that a user wants of a device; None forgets the choice.

        Raises TooManyChoices, and sqlite3.IntegrityError for an unknown user.
        """
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "DELETE FROM notice_choices WHERE user = ? AND device = ?", (user, device)
            )
            if kinds is None:
                return
            (count,) = self._connection.execute(
                "SELECT COUNT(*) FROM notice_choices WHERE user = ?", (user,)
            ).fetchone()
            if count >= _CHOICES_MAX:
                raise TooManyChoices(f"a user chooses for {_CHOICES_MAX} devices at most")
            self._connection.execute(
                "INSERT INTO notice_choices (user, device, kinds) VALUES (?, ?, ?)",
                (user, device, " ".join(kind for kind in KINDS if kind in kinds)),
            )

    def forget(self, user: str) -> None:
        """Delete the choices of a user, and those of others for its devices."""
        with self._lock:
            self._connection.execute(
                "DELETE FROM notice_choices WHERE user = :user "
                "OR substr(device, 1, length(:user) + 1) = :user || '/'",
                {"user": user},
            )

    def told(self) -> dict[int, int]:
        """Return the next offset to tell of each partition of topic `event`."""
        with self._lock:
            return dict(self._connection.execute("SELECT partition, next_offset FROM notices_told"))

    def set_told(self, offsets: Mapping[int, int]) -> None:
        """Note that all before these offsets was told."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT OR REPLACE INTO notices_told (partition, next_offset) VALUES (?, ?)",
                list(offsets.items()),
            )


def _kinds(text: str) -> frozenset[str]:
    return frozenset(text.split()) & frozenset(KINDS)
