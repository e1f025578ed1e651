"""How users are told of events: their channels and quiet hours, in a database beside the users'.

What leads somewhere and what proves who asks (URLs, tokens, secrets of signatures) is sealed with a
key out of the database of users: the file alone says only whom it is about.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.alerts.confirmation import Pending
from gateway.alerts.quiet_hours import QuietHours

CHANNELS_PER_USER_MAX: Final = 10
#: The name of the secret in the database of users, and its length.
ALERTS_SECRET: Final = "alerts"  # noqa: S105 the secret's name
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS channels (
    user TEXT NOT NULL,
    id TEXT NOT NULL,
    created INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (user, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (
    user TEXT PRIMARY KEY,
    created INTEGER NOT NULL,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;
"""

ChannelName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
ChannelText = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class Channel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server or a mailbox of a user that is told of events."""

    name: ChannelName
    kind: str
    url: ChannelText
    token: ChannelText | None = None  # sent as Bearer
    signing_secret: ChannelText | None = None  # of webhooks
    #: A mailbox that is told of nothing before its code has come back.
    pending: Pending | None = None

    def __repr__(self) -> str:
        """Return a text without secrets, which the URL may hold too."""
        return f"Channel({self.name!r}, {self.kind})"


class AlertSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds for all that a user is told."""

    quiet: QuietHours | None = None
    #: Of the texts that servers are sent: en or de.
    language: str = "en"


class TooManyChannels(ValueError):
    """A user has as many channels as one may."""


class AlertStore:
    """The channels and settings of all users. Methods block for a moment, in any thread."""

    def __init__(self, path: Path | None, key: bytes) -> None:
        """`path` of the database, None for one in memory; `key` seals, 32 bytes."""
        self._lock: Final = threading.Lock()
        self._aes: Final = AESGCM(key)
        self._connection: Final = sqlite3.connect(
            ":memory:" if path is None else path, check_same_thread=False, isolation_level=None
        )
        if path is not None:
            path.chmod(0o600)
        self._connection.executescript(f"PRAGMA secure_delete = ON;{_SCHEMA}")

    def channels(self, user: str) -> dict[str, Channel]:
        """Return a user's channels by id, the oldest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT id, sealed FROM channels WHERE user = ? ORDER BY created, id", (user,)
            ).fetchall()
        found = {}
        for channel_id, sealed in rows:
            # With another key nobody can open it: it has to be made again.
            if (value := self._opened(user, channel_id, sealed)) is not None:
                found[channel_id] = msgspec.json.decode(value, type=Channel)
        return found

    def put_channel(self, user: str, channel_id: str, channel: Channel, now_ms: int) -> None:
        """Store a new or changed channel; raises TooManyChannels."""
        sealed = self._sealed(user, channel_id, channel)
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            (others,) = self._connection.execute(
                "SELECT COUNT(*) FROM channels WHERE user = ? AND id != ?", (user, channel_id)
            ).fetchone()
            if others >= CHANNELS_PER_USER_MAX:
                raise TooManyChannels(f"a user has {CHANNELS_PER_USER_MAX} channels at most")
            self._connection.execute(
                "INSERT INTO channels (user, id, created, sealed) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (user, id) DO UPDATE SET sealed = excluded.sealed",
                (user, channel_id, now_ms, sealed),
            )

    def change_channel(
        self, user: str, channel_id: str, change: Callable[[Channel], Channel]
    ) -> Channel | None:
        """Store what `change` makes of a channel, and return it; None: there is none.

        Nobody else, in another process neither, changes it meanwhile.
        """
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            row = self._connection.execute(
                "SELECT sealed FROM channels WHERE user = ? AND id = ?", (user, channel_id)
            ).fetchone()
            value = None if row is None else self._opened(user, channel_id, row[0])
            if value is None:
                return None
            changed = change(msgspec.json.decode(value, type=Channel))
            self._connection.execute(
                "UPDATE channels SET sealed = ? WHERE user = ? AND id = ?",
                (self._sealed(user, channel_id, changed), user, channel_id),
            )
            return changed

    def remove_channel(self, user: str, channel_id: str) -> bool:
        """Delete a channel; return whether there was one."""
        with self._lock:
            done = self._connection.execute(
                "DELETE FROM channels WHERE user = ? AND id = ?", (user, channel_id)
            )
            return done.rowcount > 0

    def settings(self, user: str) -> AlertSettings:
        """Return what a user has set."""
        with self._lock:
            row = self._connection.execute(
                "SELECT value FROM settings WHERE user = ?", (user,)
            ).fetchone()
        return AlertSettings() if row is None else msgspec.json.decode(row[0], type=AlertSettings)

    def put_settings(self, user: str, settings: AlertSettings, now_ms: int) -> None:
        """Store what a user has set."""
        with self._lock:
            self._connection.execute(
                "INSERT OR REPLACE INTO settings (user, created, value) VALUES (?, ?, ?)",
                (user, now_ms, msgspec.json.encode(settings)),
            )

    def users(self) -> set[str]:
        """Return all who have stored something."""
        with self._lock:
            return {
                user
                for (user,) in self._connection.execute(
                    "SELECT user FROM channels UNION SELECT user FROM settings"
                )
            }

    def forget(self, user: str, before_ms: int | None) -> None:
        """Delete what a user stored before a time; None: all of it."""
        limit = 1 << 62 if before_ms is None else before_ms
        with self._lock:
            for table in ("channels", "settings"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE user = ? AND created < ?",  # noqa: S608
                    (user, limit),
                )

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    def _sealed(self, user: str, channel_id: str, channel: Channel) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aes.encrypt(
            nonce, msgspec.json.encode(channel), _about(user, channel_id)
        )

    def _opened(self, user: str, channel_id: str, sealed: bytes) -> bytes | None:
        try:
            return self._aes.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _about(user, channel_id)
            )
        except (InvalidTag, ValueError):
            return None


def _about(user: str, channel_id: str) -> bytes:
    """Return what is authenticated beside a channel: it is good for its user alone."""
    return f"{user}\n{channel_id}".encode()
