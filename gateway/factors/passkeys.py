"""Passkeys (W3C Web Authentication, level 3), in the user database.

A passkey is a key pair of one site in somebody's phone, computer or security key, which verifies
its owner (fingerprint, PIN) before it signs. The database has the public key.

A challenge is sealed by a secret of the installation and says until when it is good, so that
nobody fills a table by asking for challenges. One that has been answered is remembered until then,
and is not good a second time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from gateway.factors.site import Site

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS passkeys (
    id TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name),
    rp_id TEXT NOT NULL,
    public_key BLOB NOT NULL,
    sign_count INTEGER NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    used INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS passkeys_of_user ON passkeys (user);
CREATE TABLE IF NOT EXISTS answered_challenges (
    hash TEXT PRIMARY KEY,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

#: The name of the secret that seals challenges.
CHALLENGES_SECRET: Final = "passkey challenges"  # noqa: S105
CHALLENGE_LIFETIME_S: Final = 300
PASSKEYS_MAX: Final = 20
_NONCE_BYTES: Final = 16
_TIME_BYTES: Final = 8
_SEAL_BYTES: Final = 32
_SIGN_IN: Final = "sign in"
_NO_ANSWER: Final = "this is no answer to a question of this page"


class PasskeyRefused(Exception):
    """A passkey's answer is not accepted; the text says why."""


@dataclass(frozen=True)
class Passkey:
    """A passkey as its user sees it; times in ms."""

    id: str
    name: str
    rp_id: str
    created: int
    used: int | None


class Passkeys:
    """Reads, adds and checks passkeys; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock

    def of_user(self, user: str) -> list[Passkey]:
        """Return a user's passkeys, the oldest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT id, name, rp_id, created, used FROM passkeys WHERE user = ? "
                "ORDER BY created, id",
                (user,),
            ).fetchall()
        return [Passkey(*row) for row in rows]

    def creation_options(self, key: bytes, user: str, site: Site) -> dict[str, Any]:
        """Return what a browser makes a passkey of; `key` is the secret of challenges."""
        from gateway.factors.ceremonies import creation_options

        known = [each.id for each in self.of_user(user) if each.rp_id == site.rp_id]
        # Not the name: an authenticator may show this to whoever holds it.
        user_id = hmac.digest(key, f"user\0{user}".encode(), "sha256")
        challenge = _new_challenge(key, f"create {user}")
        return creation_options(site, user, user_id, challenge, known)

    def add(self, key: bytes, user: str, site: Site, name: str, answer: dict[str, Any]) -> Passkey:
        """Store the passkey that a browser has made. Raises PasskeyRefused."""
        from gateway.factors.ceremonies import Unfit, challenge_of, verified_creation

        try:
            challenge = challenge_of(answer)
            _require_sealed(key, challenge, f"create {user}")
            made = verified_creation(site, challenge, answer)
        except Unfit as error:
            raise PasskeyRefused(_NO_ANSWER) from error
        found = Passkey(made.id, name, site.rp_id, _now_ms(), None)
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._use_up(challenge)
            (count,) = self._connection.execute(
                "SELECT COUNT(*) FROM passkeys WHERE user = ?", (user,)
            ).fetchone()
            if count >= PASSKEYS_MAX:
                raise PasskeyRefused(f"a user has at most {PASSKEYS_MAX} passkeys")
            try:
                self._connection.execute(
                    "INSERT INTO passkeys (id, user, rp_id, public_key, sign_count, name, created) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(made.id, user, site.rp_id, made.public_key, made.sign_count),
                        *(name, found.created),
                    ),
                )
            except sqlite3.IntegrityError as error:
                raise PasskeyRefused("this passkey is known already") from error
        return found

    def request_options(self, key: bytes, site: Site) -> dict[str, Any]:
        """Return what a browser asks for any passkey of this site with: it names no user."""
        from gateway.factors.ceremonies import request_options

        return request_options(site, _new_challenge(key, _SIGN_IN))

    def verified(self, key: bytes, site: Site, answer: dict[str, Any]) -> tuple[str, str]:
        """Return the user whom a passkey signs in, and the passkey's id. Raises PasskeyRefused."""
        from gateway.factors.ceremonies import Unfit, challenge_of, id_of, verified_signature

        try:
            challenge, passkey_id = challenge_of(answer), id_of(answer)
        except Unfit as error:
            raise PasskeyRefused(_NO_ANSWER) from error
        _require_sealed(key, challenge, _SIGN_IN)
        with self._lock:
            row = self._connection.execute(
                "SELECT p.user, p.public_key, p.sign_count FROM passkeys p "
                "JOIN users u ON u.name = p.user "
                "WHERE p.id = ? AND p.rp_id = ? AND u.revoked IS NULL",
                (passkey_id, site.rp_id),
            ).fetchone()
        if row is None:
            raise PasskeyRefused("this passkey is not known here")
        user, public_key, sign_count = row
        try:
            count = verified_signature(site, challenge, answer, public_key, sign_count)
        except Unfit as error:
            raise PasskeyRefused("the passkey's answer does not fit") from error
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._use_up(challenge)
            changed = self._connection.execute(
                "UPDATE passkeys SET sign_count = ?, used = ? WHERE id = ? AND sign_count = ?",
                (count, _now_ms(), passkey_id, sign_count),
            ).rowcount
            if not changed:
                raise PasskeyRefused("the passkey was used elsewhere at the same moment")
        return str(user), passkey_id

    def remove(self, user: str, passkey_id: str) -> bool:
        """Delete a passkey of a user; tell whether there was one."""
        with self._lock:
            deleted = self._connection.execute(
                "DELETE FROM passkeys WHERE user = ? AND id = ?", (user, passkey_id)
            )
        return deleted.rowcount > 0

    def forget(self, user: str) -> None:
        """Delete all passkeys of a user."""
        with self._lock:
            self._connection.execute("DELETE FROM passkeys WHERE user = ?", (user,))

    def _use_up(self, challenge: bytes) -> None:
        """Let a challenge not be answered again; called in a transaction. Raises PasskeyRefused."""
        now = _now_ms()
        self._connection.execute("DELETE FROM answered_challenges WHERE expires <= ?", (now,))
        try:
            self._connection.execute(
                "INSERT INTO answered_challenges (hash, expires) VALUES (?, ?)",
                (hashlib.sha256(challenge).hexdigest(), now + 2 * CHALLENGE_LIFETIME_S * 1000),
            )
        except sqlite3.IntegrityError as error:
            raise PasskeyRefused("this question has been answered already") from error


def _new_challenge(key: bytes, purpose: str) -> bytes:
    expires = _now_ms() + CHALLENGE_LIFETIME_S * 1000
    head = secrets.token_bytes(_NONCE_BYTES) + expires.to_bytes(_TIME_BYTES, "big")
    return head + _seal(key, head, purpose)


def _require_sealed(key: bytes, challenge: bytes, purpose: str) -> None:
    """Raise PasskeyRefused unless a challenge is ours, for this purpose, and not too old."""
    head, seal = challenge[:-_SEAL_BYTES], challenge[-_SEAL_BYTES:]
    if len(head) != _NONCE_BYTES + _TIME_BYTES:
        raise PasskeyRefused(_NO_ANSWER)
    if not hmac.compare_digest(seal, _seal(key, head, purpose)):
        raise PasskeyRefused(_NO_ANSWER)
    if int.from_bytes(head[_NONCE_BYTES:], "big") <= _now_ms():
        raise PasskeyRefused("this question was asked too long ago")


def _seal(key: bytes, head: bytes, purpose: str) -> bytes:
    return hmac.digest(key, head + purpose.encode(), "sha256")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
