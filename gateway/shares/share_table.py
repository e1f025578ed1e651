"""Shares in the user database. Of a token only the SHA-256 is stored.

A share ends with its user, at its time, or when its user revokes it. What has ended is deleted, so
that nothing tells whether a token was ever good.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
import time
from dataclasses import fields
from typing import Any, Final

import msgspec

from gateway.shares.share import Offer, Share

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS shares (
    hash TEXT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    user TEXT NOT NULL REFERENCES users (name),
    name TEXT NOT NULL,
    devices TEXT NOT NULL,
    created INTEGER NOT NULL,
    until INTEGER NOT NULL,
    from_ms INTEGER,
    to_ms INTEGER,
    precision TEXT NOT NULL,
    metres INTEGER,
    hides_home INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS shares_of_user ON shares (user);
"""

#: Shares of one user that are valid at one time.
SHARES_MAX: Final = 100
#: Bytes of a token: 192 random bits, 32 characters in a link.
_TOKEN_BYTES: Final = 24
_ID_BYTES: Final = 9

_COLUMNS: Final = tuple(each.name for each in fields(Share))
_devices = msgspec.json.Decoder(tuple[str, ...]).decode


class TooManyShares(Exception):
    """The user has SHARES_MAX shares already."""


def share_hash(token: str) -> str:
    """Return the hash of a share's token; only the hash is stored."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ShareTable:
    """Reads and changes shares; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock

    def add(self, user: str, offer: Offer) -> tuple[Share, str]:
        """Return a new share with its token, which is stored nowhere.

        Raises KeyError for an unknown user, and TooManyShares.
        """
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        share = Share(
            hash=share_hash(token),
            id=secrets.token_urlsafe(_ID_BYTES),
            user=user,
            created=_now_ms(),
            **vars(offer),
        )
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            known = self._connection.execute(
                "SELECT 1 FROM users WHERE name = ? AND revoked IS NULL", (user,)
            ).fetchone()
            if known is None:
                raise KeyError(user)
            self._connection.execute("DELETE FROM shares WHERE until <= ?", (share.created,))
            (count,) = self._connection.execute(
                "SELECT COUNT(*) FROM shares WHERE user = ?", (user,)
            ).fetchone()
            if count >= SHARES_MAX:
                raise TooManyShares(user)
            self._connection.execute(
                f"INSERT INTO shares ({', '.join(_COLUMNS)}) "  # noqa: S608
                f"VALUES ({', '.join(f':{name}' for name in _COLUMNS)})",
                vars(share) | {"devices": msgspec.json.encode(share.devices).decode()},
            )
        return share, token

    def find(self, hashed: str) -> Share | None:
        """Return the share whose token has this hash; None if there is none that is valid now."""
        return next(iter(self._found("s.hash = ?", hashed)), None)

    def of_user(self, user: str) -> list[Share]:
        """Return the valid shares of a user, the newest first."""
        return self._found("s.user = ?", user)

    def end(self, user: str, share_id: str) -> bool:
        """End a share of a user; tell whether there was one that was valid."""
        with self._lock:
            deleted = self._connection.execute(
                "DELETE FROM shares WHERE user = ? AND id = ? RETURNING until", (user, share_id)
            ).fetchall()
        return any(until > _now_ms() for (until,) in deleted)

    def forget(self, user: str) -> None:
        """End all shares of a user."""
        with self._lock:
            self._connection.execute("DELETE FROM shares WHERE user = ?", (user,))

    def _found(self, condition: str, value: str) -> list[Share]:
        columns = ", ".join(f"s.{name}" for name in _COLUMNS)
        with self._lock:
            rows = self._connection.execute(
                f"SELECT {columns} FROM shares s JOIN users u ON u.name = s.user "  # noqa: S608
                f"WHERE {condition} AND s.until > ? AND u.revoked IS NULL "
                "ORDER BY s.created DESC, s.id",
                (value, _now_ms()),
            ).fetchall()
        return [_share(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _share(row: dict[str, Any]) -> Share:
    return Share(
        **row | {"devices": _devices(row["devices"]), "hides_home": bool(row["hides_home"])}
    )
