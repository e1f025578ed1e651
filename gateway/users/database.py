"""Users, their tokens and passwords, in one SQLite file.

Tokens are made here from 256 random bits, so that their SHA-256 is as good as the token is secret;
what people choose themselves is hashed with argon2id. Neither is ever stored readable. All
processes of one machine share the file (write-ahead log); a PostgreSQL for a cluster comes later.
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

from gateway.formats.characters import FORBIDDEN_IN_NAMES
from gateway.users import browser_sessions as sessions
from gateway.users import rights_versions, scram_verifiers
from gateway.users.rights import USUAL_RIGHTS, Rights, RightsTable

#: What a token begins with, so that a person, a secret scanner and `authenticate` recognise one.
TOKEN_PREFIX: Final = "wl_"  # noqa: S105

#: The administrator whom a one-time link of the machine's own signs in. It has no token, and nobody
#: can be added by this name.
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

#: OWASP's smallest recommendation for argon2id: 19 MiB, two passes. Memory is what a gateway that
#: verifies for many users has least of.
password_hasher = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class UserExists(Exception):
    """There is a user of that name already."""


class TooManyTokens(Exception):
    """The devices of a user have as many tokens as they may."""


class UnknownUser(Exception):
    """There is no user of that name, or it has been revoked."""


@dataclass(frozen=True)
class User:
    """One line of `waylog user list`."""

    name: str
    admin: bool
    created: int  # ms
    revoked: int | None  # ms
    devices: tuple[str, ...]  # with a token of their own


@dataclass(frozen=True)
class Credential:
    """Something that proves to be a user, or one device of it, which is never an administrator."""

    user: str
    device: str | None
    admin: bool
    kind: str  # token | password | session
    hash: str = field(repr=False)
    rights: Rights = USUAL_RIGHTS


@dataclass(frozen=True)
class Standing:
    """A user that has not been revoked."""

    admin: bool


def token_hash(token: str) -> str:
    """The hash of a token, which is all that is stored of it."""
    return hashlib.sha256(token.encode()).hexdigest()


class UserStore:
    """The SQLite file; made if it does not exist. Usable from several threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Nobody else on the machine learns the hashes.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
        try:
            self._connection.isolation_level = None
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            # What is deleted is overwritten: a page that is free keeps nothing.
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.executescript(_SCHEMA + scram_verifiers.SCHEMA + sessions.SCHEMA)
            self.rights = RightsTable(self._connection, self._lock)
            self.sessions = sessions.SessionTable(self._connection, self._lock)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def data_version(self) -> int:
        """Grows whenever this connection or another one has changed the file."""
        with self._lock:
            others = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            return others + self._connection.total_changes

    def rights_version(self) -> int:
        """The number of the last change of anybody's credentials or rights."""
        with self._lock:
            return rights_versions.newest(self._connection)

    def rights_changed_after(self, version: int) -> dict[str, int]:
        """Everybody whose credentials or rights have changed since, with the last version."""
        with self._lock:
            return rights_versions.changed_after(self._connection, version)

    def standing(self, user: str, credential: str | None) -> Standing | None:
        """A user as it is now; None if it, or its credential or session, has been revoked.

        `credential` is the hash.
        """
        with self._lock:
            row = self._connection.execute(
                "SELECT admin FROM users WHERE name = :user AND revoked IS NULL AND (:hash IS NULL "
                "OR EXISTS (SELECT 1 FROM credentials WHERE hash = :hash AND user = :user) "
                "OR EXISTS (SELECT 1 FROM sessions "
                "WHERE hash = :hash AND user = :user AND expires > :now))",
                {"user": user, "hash": credential, "now": time.time_ns() // 1_000_000},
            ).fetchone()
        return None if row is None else Standing(admin=bool(row[0]))

    def set_admin(self, user: str, admin: bool) -> None:
        """Make a user an administrator, or an ordinary user again. Raises UnknownUser."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(user)
            self._connection.execute(
                "UPDATE users SET admin = ? WHERE name = ?", (int(admin), user)
            )

    def add(self, name: str, *, admin: bool = False, password: str | None = None) -> str | None:
        """Add a user; returns its new token, or None when it chose a password itself.

        A user that was revoked comes back with nothing but the new credential. Raises UserExists,
        ValueError for a name or password that cannot be used.
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

    def ensure_operator(self) -> str:
        """The name of the machine's own administrator, who is made if it does not exist."""
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
        """A new token of a user, or of one device of it.

        Raises UnknownUser, ValueError, and TooManyTokens where the devices of the user have
        `devices_tokens_max` together.
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
        """Take all credentials of a user away, those of its devices too. Raises UnknownUser."""
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

    def exists(self, name: str) -> bool:
        """Tell whether there is a user of that name who has not been revoked."""
        with self._lock, suppress(UnknownUser):
            self._require_user(name)
            return True
        return False

    def revoke_device(self, user: str, device: str) -> None:
        """Take the tokens of one device away. Raises UnknownUser."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._require_user(user)
            self._connection.execute(
                "DELETE FROM credentials WHERE user = ? AND device = ?", (user, device)
            )

    def users(self) -> list[User]:
        """All users, by name."""
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
        """The credential a token is. It is found by its hash, which nobody can steer."""
        rows = self._credentials("c.hash = ? AND c.kind = 'token'", token_hash(token))
        return rows[0] if rows else None

    def credential_of_session(self, secret: str) -> Credential | None:
        """The credential that the secret of a session is; None if it has ended."""
        session = self.sessions.find(sessions.session_hash(secret))
        if session is None:
            return None
        rights = self.rights.of(session.user)
        admin = session.admin and session.device is None
        return Credential(session.user, session.device, admin, "session", session.hash, rights)

    def scram_verifier(self, name: str) -> tuple[Credential, scram_verifiers.Verifier] | None:
        """The newest token of USER or USER/DEVICE as SCRAM knows it; None if there is none."""
        user, _, device = name.partition("/")
        with self._lock:
            found = scram_verifiers.newest(self._connection, user, device or None)
        if found is None:
            return None
        hashed, verifier = found
        credentials = self._credentials("c.hash = ?", hashed)
        return (credentials[0], verifier) if credentials else None

    def password_of_user(self, user: str) -> Credential | None:
        """The credential with a user's password hash."""
        rows = self._credentials("c.user = ? AND c.kind = 'password'", user)
        return rows[0] if rows else None

    def holds(self, credential: Credential) -> bool:
        """Tell whether a credential is still good, exactly as it was."""
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
    """256 random bits as text."""
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
    """The token of a user that a program needs, from `token_file`; both are made if missing.

    A file whose token no longer works (the user was revoked, or the database is another) is
    written anew. The file can be read by its owner alone.
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
