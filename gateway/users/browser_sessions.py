"""Sessions of browsers, and the one-time codes that begin them, in the user database.

Secrets of both are 256 random bits of which the SHA-256 is stored. A session has the rights of its
user, never more. It ends with its user, with the credential it was begun with, at sign-out, or when
it expires.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
import time
from typing import Final, NamedTuple

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sign_in_codes (
    hash TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name),
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    hash TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name),
    device TEXT,
    credential TEXT REFERENCES credentials (hash) ON DELETE CASCADE,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    passkey TEXT,
    agent TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_of_user ON sessions (user);
CREATE INDEX IF NOT EXISTS sessions_of_credential ON sessions (credential);
"""

CODE_LIFETIME_S: Final = 15 * 60
#: Of the code that a new user is invited by.
INVITATION_LIFETIME_S: Final = 7 * 86_400
SESSION_LIFETIME_S: Final = 30 * 86_400
#: Sessions or codes of one user; beyond these numbers the oldest ones end.
SESSIONS_MAX: Final = 50
_SHOWN_CHARACTERS: Final = 16
_AGENT_CHARACTERS_MAX: Final = 200
CODES_MAX: Final = 20


class Session(NamedTuple):
    """A session that is valid now."""

    hash: str
    user: str
    admin: bool
    device: str | None  # if set, the session shows only this device
    expires: int  # ms
    created: int = 0  # ms


class ListedSession(NamedTuple):
    """A session as its user sees it; times in ms."""

    id: str  # the beginning of its hash
    created: int
    expires: int
    agent: str  # what the browser called itself


def session_hash(secret: str) -> str:
    """Return the hash of a session's or a code's secret; only the hash is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def shown_id(hashed: str) -> str:
    """Return the id by which a user names a session; the secret cannot be found from it."""
    return hashed[:_SHOWN_CHARACTERS]


def _add_columns(connection: sqlite3.Connection) -> None:
    """Migrate a database of an earlier version."""
    known = {row[1] for row in connection.execute("PRAGMA table_info (sessions)")}
    for name, kind in (("passkey", "TEXT"), ("agent", "TEXT NOT NULL DEFAULT ''")):
        if name not in known:
            connection.execute(f"ALTER TABLE sessions ADD COLUMN {name} {kind}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class SessionTable:
    """Reads and changes sessions and codes; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock
        with lock, connection:
            connection.execute("BEGIN IMMEDIATE")
            _add_columns(connection)

    def new_code(self, user: str, lifetime_s: float = CODE_LIFETIME_S) -> str:
        """Return a code that signs `user` in once. Raises KeyError for an unknown user."""
        code = secrets.token_urlsafe(32)
        now = _now_ms()
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require(user)
            self._connection.execute("DELETE FROM sign_in_codes WHERE expires <= ?", (now,))
            self._keep_newest("sign_in_codes", "expires", user, CODES_MAX - 1)
            expires = self._after_all(
                "sign_in_codes", "expires", user, now + int(lifetime_s * 1000), CODES_MAX
            )
            self._connection.execute(
                "INSERT INTO sign_in_codes (hash, user, expires) VALUES (?, ?, ?)",
                (session_hash(code), user, expires),
            )
        return code

    def redeem(self, code: str) -> str | None:
        """Return the user whom a code signs in, and delete the code; None if it is not valid."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            row = self._connection.execute(
                "DELETE FROM sign_in_codes WHERE hash = ? RETURNING user, expires",
                (session_hash(code),),
            ).fetchone()
        return str(row[0]) if row is not None and row[1] > _now_ms() else None

    def begin(
        self,
        user: str,
        device: str | None = None,
        credential: str | None = None,
        lifetime_s: float = SESSION_LIFETIME_S,
        *,
        passkey: str | None = None,
        agent: str = "",
    ) -> str:
        """Return the secret of a new session, which ends with `credential` if one is given.

        `passkey` is the id of the one that began it; `agent` is what the browser calls itself.
        Raises KeyError for a user or a credential that no longer exists.
        """
        secret = secrets.token_urlsafe(32)
        now = _now_ms()
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require(user)
            self._connection.execute("DELETE FROM sessions WHERE expires <= ?", (now,))
            self._keep_newest("sessions", "created", user, SESSIONS_MAX - 1)
            created = self._after_all("sessions", "created", user, now, SESSIONS_MAX)
            try:
                self._connection.execute(
                    "INSERT INTO sessions (hash, user, device, credential, created, expires, "
                    "passkey, agent) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(session_hash(secret), user, device, credential),
                        *(created, now + int(lifetime_s * 1000)),
                        *(passkey, agent[:_AGENT_CHARACTERS_MAX]),
                    ),
                )
            except sqlite3.IntegrityError as error:
                raise KeyError(credential) from error
        return secret

    def find(self, hashed: str) -> Session | None:
        """Return the session with this hash; None if there is none that is valid now."""
        with self._lock:
            row = self._connection.execute(
                "SELECT s.hash, s.user, u.admin, s.device, s.expires, s.created FROM sessions s "
                "JOIN users u ON u.name = s.user "
                "WHERE s.hash = ? AND s.expires > ? AND u.revoked IS NULL",
                (hashed, _now_ms()),
            ).fetchone()
        if row is None:
            return None
        found, user, admin, device, expires, created = row
        return Session(found, user, bool(admin), device, expires, created)

    def of_user(self, user: str) -> list[ListedSession]:
        """Return the valid sessions of a user, the newest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT hash, created, expires, agent FROM sessions "
                "WHERE user = ? AND expires > ? ORDER BY created DESC",
                (user, _now_ms()),
            ).fetchall()
        return [ListedSession(shown_id(row[0]), *row[1:]) for row in rows]

    def end_of_user(
        self, user: str, *, shown: str | None = None, passkey: str | None = None, but: str = ""
    ) -> int:
        """End sessions of a user, all or those that are named; return how many.

        `shown` is the id of one, `passkey` that of the passkey that began them, `but` the hash of
        one that stays.
        """
        with self._lock:
            ended = self._connection.execute(
                "DELETE FROM sessions WHERE user = :user AND hash != :but "
                "AND (:shown IS NULL OR substr(hash, 1, :length) = :shown) "
                "AND (:passkey IS NULL OR passkey = :passkey)",
                {
                    **{"user": user, "but": but, "shown": shown, "passkey": passkey},
                    "length": _SHOWN_CHARACTERS,
                },
            )
        return ended.rowcount

    def end(self, hashed: str) -> None:
        """End a session (sign out)."""
        with self._lock:
            self._connection.execute("DELETE FROM sessions WHERE hash = ?", (hashed,))

    def forget(self, user: str) -> None:
        """End all sessions of a user and delete its codes."""
        with self._lock:
            for table in ("sessions", "sign_in_codes"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE user = ?",  # noqa: S608
                    (user,),
                )

    def _require(self, user: str) -> None:
        row = self._connection.execute(
            "SELECT 1 FROM users WHERE name = ? AND revoked IS NULL", (user,)
        ).fetchone()
        if row is None:
            raise KeyError(user)

    def _keep_newest(self, table: str, order: str, user: str, count: int) -> None:
        self._connection.execute(
            f"DELETE FROM {table} "  # noqa: S608
            f"WHERE hash IN (SELECT hash FROM {table} WHERE user = ? "
            f"ORDER BY {order} DESC LIMIT -1 OFFSET ?)",
            (user, count),
        )

    def _after_all(self, table: str, order: str, user: str, time_ms: int, count: int) -> int:
        """Return `time_ms`, or a little more to sort a new row after those of the same time."""
        (newest,) = self._connection.execute(
            f"SELECT max({order}) FROM {table} "  # noqa: S608
            f"WHERE user = ? AND {order} BETWEEN ? AND ?",
            (user, time_ms, time_ms + count),
        ).fetchone()
        return time_ms if newest is None else int(newest) + 1
