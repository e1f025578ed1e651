"""Users, their tokens and passwords, in one SQLite file.

Tokens are 256 random bits, so their SHA-256 needs no salt or stretching. Passwords are chosen by
people and hashed with argon2id. Neither is ever stored in plain text. All processes of one machine
share the file (write-ahead log); PostgreSQL for a cluster is planned.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher

from gateway.factors import passkeys, second_factor
from gateway.formats.characters import FORBIDDEN_IN_NAMES
from gateway.shares import friend_requests, share_table
from gateway.users import browser_sessions as sessions
from gateway.users import rights_versions, scram_verifiers
from gateway.users.notice_choices import NoticeChoices
from gateway.users.rights import USUAL_RIGHTS, Rights, RightsTable

#: The prefix of a token, by which people, secret scanners and `authenticate` recognise one.
TOKEN_PREFIX: Final = "wl_"  # noqa: S105

#: The administrator signed in by a one-time link made on the machine itself. It has no token, and
#: no user can be added under this name.
OPERATOR: Final = "_operator"

#: A user's name is a level of MQTT topics and a part of the record key.
USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
DEVICE_NAME = re.compile(rf"[^{FORBIDDEN_IN_NAMES}]{{1,128}}")

PASSWORD_CHARACTERS_MIN: Final = 8

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS users (
    name TEXT PRIMARY KEY,
    admin INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL,
    revoked INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS credentials (
    hash TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name),
    device TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('token', 'password')),
    created INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS credentials_of_user ON credentials (user);
"""

#: OWASP's smallest recommendation for argon2id: 19 MiB, two passes. Memory is the scarcest resource
#: of a gateway that verifies for many users.
password_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class UserExists(Exception):
    """A user of that name already exists."""


class TooManyTokens(Exception):
    """The devices of a user have the maximum number of tokens."""


class UnknownUser(Exception):
    """There is no user of that name, or it has been revoked."""


@dataclass(frozen=True)
class User:
    """One line of `waylog user list`."""

    name: str
    admin: bool
    created: int  # ms
    revoked: int | None  # ms
    devices: tuple[str, ...]  # devices that have their own token


@dataclass(frozen=True)
class DeviceTokens:
    """A device with tokens of its own."""

    device: str  # USER/DEVICE
    tokens: int
    newest: int  # ms, when the newest one was made


@dataclass(frozen=True)
class Credential:
    """Proof of identity of a user, or of one of its devices, which is never an administrator."""

    user: str
    device: str | None
    admin: bool
    kind: str  # token | password | session
    hash: str = field(repr=False)
    rights: Rights = USUAL_RIGHTS


@dataclass(frozen=True)
class UserState:
    """The state of a user that has not been revoked."""

    admin: bool


def token_hash(token: str) -> str:
    """Return the hash of a token; only the hash is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


class UserStore:
    """The SQLite file; created if it does not exist. Thread-safe."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Other accounts of the machine must not read the hashes.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
        try:
            self._connection.isolation_level = None
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            # Deleted data is overwritten, so free pages hold no secrets.
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.executescript(
                _SCHEMA
                + scram_verifiers.SCHEMA
                + sessions.SCHEMA
                + share_table.SCHEMA
                + friend_requests.SCHEMA
                + second_factor.SCHEMA
                + passkeys.SCHEMA
            )
            self.rights = RightsTable(self._connection, self._lock)
            self.sessions = sessions.SessionTable(self._connection, self._lock)
            self.shares = share_table.ShareTable(self._connection, self._lock)
            self.friend_requests = friend_requests.FriendRequests(self._connection, self._lock)
            self.second_factors = second_factor.SecondFactors(self._connection, self._lock)
            self.passkeys = passkeys.Passkeys(self._connection, self._lock)
            self.notices = NoticeChoices(self._connection, self._lock)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def data_version(self) -> int:
        """Return a number that grows whenever any connection has changed the file."""
        with self._lock:
            others = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            return others + self._connection.total_changes

    def rights_version(self) -> int:
        """Return the number of the last change of any user's credentials or rights."""
        with self._lock:
            return rights_versions.newest(self._connection)

    def rights_changed_after(self, version: int) -> dict[str, int]:
        """Return the users whose rights changed after `version`, each with its last change.

        Changes of credentials count, too.
        """
        with self._lock:
            return rights_versions.changed_after(self._connection, version)

    def standing(self, user: str, credential: str | None) -> UserState | None:
        """Return a user's current state; None if user, credential or session has been revoked.

        `credential` is the hash of the credential or session; None checks the user alone.
        """
        with self._lock:
            row = self._connection.execute(
                "SELECT admin FROM users WHERE name = :user AND revoked IS NULL AND (:hash IS NULL "
                "OR EXISTS (SELECT 1 FROM credentials WHERE hash = :hash AND user = :user) "
                "OR EXISTS (SELECT 1 FROM sessions "
                "WHERE hash = :hash AND user = :user AND expires > :now))",
                {"user": user, "hash": credential, "now": time.time_ns() // 1_000_000},
            ).fetchone()
        return None if row is None else UserState(admin=bool(row[0]))

    def set_admin(self, user: str, admin: bool) -> None:
        """Make a user an administrator, or an ordinary user again. Raises UnknownUser."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(user)
            self._connection.execute(
                "UPDATE users SET admin = ? WHERE name = ?", (int(admin), user)
            )

    def add(self, name: str, *, admin: bool = False, password: str | None = None) -> str | None:
        """Add a user; return its new token, or None if it has a password.

        A user that was revoked returns with nothing but the new credential. Raises UserExists, and
        ValueError for a name or password that is not allowed.
        """
        if USER_NAME.fullmatch(name) is None:
            raise ValueError(
                f"{name!r} cannot be a user's name: letters, digits and . _ @ -, at most 64"
            )
        if password is not None:
            _check_password(password)
        token = new_token() if password is None else None
        hashed, kind = _hashed(token, password)
        verifier = None if token is None else scram_verifiers.verifier_of(token)
        now = time.time_ns() // 1_000_000
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            row = self._connection.execute(
                "SELECT revoked FROM users WHERE name = ?", (name,)
            ).fetchone()
            if row is not None and row[0] is None:
                raise UserExists(name)
            self._connection.execute(
                "INSERT OR REPLACE INTO users (name, admin, created) VALUES (?, ?, ?)",
                (name, int(admin), now),
            )
            self._insert_credential(hashed, name, None, kind, now)
            if verifier is not None:
                scram_verifiers.keep(self._connection, hashed, verifier)
        return token

    def add_invited(self, name: str, admin: bool) -> None:
        """Add a user without any credential, who comes by a one-time code and sets a password.

        Raises as `add` does.
        """
        token = self.add(name, admin=admin)
        assert token is not None
        with self._lock:
            self._connection.execute("DELETE FROM credentials WHERE hash = ?", (token_hash(token),))

    def ensure_operator(self) -> str:
        """Return the name of the machine's own administrator, which is created if missing."""
        with self._lock:
            self._connection.execute(
                "INSERT INTO users (name, admin, created) VALUES (?, 1, ?) "
                "ON CONFLICT (name) DO UPDATE SET revoked = NULL, admin = 1 "
                "WHERE revoked IS NOT NULL OR admin != 1",
                (OPERATOR, time.time_ns() // 1_000_000),
            )
        return OPERATOR

    def add_token(
        self, user: str, device: str | None = None, *, devices_tokens_max: int | None = None
    ) -> str:
        """Return a new token of a user, or of one of its devices.

        Raises UnknownUser, ValueError, and TooManyTokens if the devices of the user already have
        `devices_tokens_max` tokens together.
        """
        if device is not None and DEVICE_NAME.fullmatch(device) is None:
            raise ValueError(f"{device!r} cannot be a device's name: no space, /, + or #")
        token = new_token()
        verifier = scram_verifiers.verifier_of(token)
        now = time.time_ns() // 1_000_000
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(user)
            if devices_tokens_max is not None:
                (count,) = self._connection.execute(
                    "SELECT COUNT(*) FROM credentials"
                    " WHERE user = ? AND kind = 'token' AND device IS NOT NULL",
                    (user,),
                ).fetchone()
                if count >= devices_tokens_max:
                    raise TooManyTokens(user)
            self._insert_credential(token_hash(token), user, device, "token", now)
            scram_verifiers.keep(self._connection, token_hash(token), verifier)
        return token

    def set_password(self, user: str, password: str) -> None:
        """Replace the password of a user; its tokens stay. Raises UnknownUser, ValueError."""
        _check_password(password)
        hashed = password_hasher.hash(password)
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(user)
            self._connection.execute(
                "DELETE FROM credentials WHERE user = ? AND kind = 'password'", (user,)
            )
            self._insert_credential(hashed, user, None, "password", time.time_ns() // 1_000_000)

    def revoke(self, name: str) -> None:
        """Revoke a user: delete its credentials and those of its devices. Raises UnknownUser."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(name)
            self._connection.execute("DELETE FROM credentials WHERE user = ?", (name,))
            self._connection.execute(
                "UPDATE users SET revoked = ? WHERE name = ?",
                (time.time_ns() // 1_000_000, name),
            )
        self.rights.forget(name)
        self.sessions.forget(name)
        self.shares.forget(name)
        self.friend_requests.forget(name)
        self.second_factors.forget(name)
        self.passkeys.forget(name)
        self.notices.forget(name)
        self._empty_write_ahead_log()

    def _empty_write_ahead_log(self) -> None:
        """Empty the file `-wal`, in which older pages still have what was deleted.

        Waits for other processes that read just now, as long as for any lock.
        """
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def exists(self, name: str) -> bool:
        """Tell whether there is a user of that name that has not been revoked."""
        with self._lock, suppress(UnknownUser):
            self._require_user(name)
            return True
        return False

    def user_since(self, name: str) -> int | None:
        """Return when a user was added (ms), for the last time; None if it has been revoked."""
        with self._lock:
            row = self._connection.execute(
                "SELECT created FROM users WHERE name = ? AND revoked IS NULL", (name,)
            ).fetchone()
        return None if row is None else int(row[0])

    def revoke_device(self, user: str, device: str) -> int:
        """Delete the tokens of one device; return their number. Raises UnknownUser."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(user)
            deleted = self._connection.execute(
                "DELETE FROM credentials WHERE user = ? AND device = ?", (user, device)
            )
            return deleted.rowcount

    def device_tokens(self, user: str) -> list[DeviceTokens]:
        """Return the devices of a user that have tokens, by name."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT device, COUNT(*), MAX(created) FROM credentials"
                " WHERE user = ? AND kind = 'token' AND device IS NOT NULL"
                " GROUP BY device ORDER BY device",
                (user,),
            ).fetchall()
        return [DeviceTokens(f"{user}/{name}", count, newest) for name, count, newest in rows]

    def users(self) -> list[User]:
        """Return all users, by name."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT name, admin, created, revoked FROM users ORDER BY name"
            ).fetchall()
            devices = self._connection.execute(
                "SELECT DISTINCT user, device FROM credentials WHERE device IS NOT NULL "
                "ORDER BY device"
            ).fetchall()
        return [
            User(name, bool(admin), created, revoked, tuple(d for u, d in devices if u == name))
            for name, admin, created, revoked in rows
        ]

    def credential_of_token(self, token: str) -> Credential | None:
        """Return the credential of a token, looked up by its hash, which a caller cannot choose."""
        rows = self._credentials("c.hash = ? AND c.kind = 'token'", token_hash(token))
        return rows[0] if rows else None

    def credential_of_session(self, secret: str) -> Credential | None:
        """Return the credential of a session's secret; None if the session has ended."""
        session = self.sessions.find(sessions.session_hash(secret))
        if session is None:
            return None
        rights = self.rights.of(session.user)
        admin = session.admin and session.device is None
        return Credential(session.user, session.device, admin, "session", session.hash, rights)

    def scram_verifier(self, name: str) -> tuple[Credential, scram_verifiers.Verifier] | None:
        """Return the newest token of USER or USER/DEVICE with its SCRAM verifier, or None."""
        user, _, device = name.partition("/")
        with self._lock:
            found = scram_verifiers.newest(self._connection, user, device or None)
        if found is None:
            return None
        hashed, verifier = found
        credentials = self._credentials("c.hash = ?", hashed)
        return (credentials[0], verifier) if credentials else None

    def password_of_user(self, user: str) -> Credential | None:
        """Return the credential with a user's password hash, or None."""
        rows = self._credentials("c.user = ? AND c.kind = 'password'", user)
        return rows[0] if rows else None

    def holds(self, credential: Credential) -> bool:
        """Tell whether a credential is still stored, unchanged."""
        return credential in self._credentials("c.hash = ?", credential.hash)

    def _credentials(self, condition: str, value: str) -> list[Credential]:
        with self._lock:
            rows = self._connection.execute(
                "SELECT c.user, c.device, u.admin, c.kind, c.hash FROM credentials c "  # noqa: S608
                f"JOIN users u ON u.name = c.user WHERE u.revoked IS NULL AND {condition}",
                (value,),
            ).fetchall()
        return [
            Credential(
                user, device, bool(admin) and device is None, kind, hashed, self.rights.of(user)
            )
            for user, device, admin, kind, hashed in rows
        ]

    def _require_user(self, name: str) -> None:
        row = self._connection.execute(
            "SELECT 1 FROM users WHERE name = ? AND revoked IS NULL", (name,)
        ).fetchone()
        if row is None:
            raise UnknownUser(name)

    def _insert_credential(
        self, hashed: str, user: str, device: str | None, kind: str, now: int
    ) -> None:
        self._connection.execute(
            "INSERT INTO credentials (hash, user, device, kind, created) VALUES (?, ?, ?, ?, ?)",
            (hashed, user, device, kind, now),
        )


def new_token() -> str:
    """Return a new token: 256 random bits as text."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def _check_password(password: str) -> None:
    if len(password) < PASSWORD_CHARACTERS_MIN:
        raise ValueError(f"a password has at least {PASSWORD_CHARACTERS_MIN} characters")
    if password.startswith(TOKEN_PREFIX):
        raise ValueError(f"a password does not begin with {TOKEN_PREFIX}: tokens do")


def _hashed(token: str | None, password: str | None) -> tuple[str, str]:
    if token is not None:
        return token_hash(token), "token"
    assert password is not None
    return password_hasher.hash(password), "password"


def ensure_user(path: Path, name: str, token_file: Path, *, admin: bool = False) -> str:
    """Return the token of a user that a program needs, from `token_file`; create both if missing.

    If the token no longer works (the user was revoked, or the database is another one), a new one
    is written. Only the file's owner can read it.
    """
    store = UserStore(path)
    try:
        with suppress(FileNotFoundError):
            token = token_file.read_text(encoding="utf-8").strip()
            credential = store.credential_of_token(token)
            if credential is not None and credential.user == name:
                return token
        try:
            created = store.add(name, admin=admin)
            assert created is not None
            token = created
        except UserExists:
            token = store.add_token(name)
        token_file.parent.mkdir(parents=True, exist_ok=True)
        partial = token_file.with_name(f"{token_file.name}.{os.getpid()}")
        with os.fdopen(
            os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(token + "\n")
        partial.replace(token_file)
        return token
    finally:
        store.close()
