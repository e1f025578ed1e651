"""Second factors: time-based codes (TOTP, RFC 6238) and recovery codes, in the user database.

A code is accepted once: RFC 6238, section 5.2, wants it, since whoever looks over a shoulder has
the code too. Its secret has to be readable, as codes are computed from it; the file that holds it
is its owner's alone. Recovery codes are 80 random bits, of which the SHA-256 is stored.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import sqlite3
import threading
from typing import Final

import pyotp

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS second_factors (
    user TEXT PRIMARY KEY REFERENCES users (name),
    secret TEXT NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0,
    last_step INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS recovery_codes (
    hash TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES users (name)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS recovery_codes_of_user ON recovery_codes (user);
"""

STEP_S: Final = 30
#: Steps before and after now whose codes are accepted, for clocks that differ.
_STEPS_OFF: Final = 1
RECOVERY_CODES: Final = 10
_RECOVERY_BYTES: Final = 10


class SecondFactors:
    """Reads and changes second factors; `lock` guards the connection of a UserStore."""

    def __init__(self, connection: sqlite3.Connection, lock: threading.Lock) -> None:
        self._connection = connection
        self._lock = lock

    def is_on(self, user: str) -> bool:
        """Tell whether a password alone does not sign this user in."""
        with self._lock:
            row = self._connection.execute(
                "SELECT 1 FROM second_factors WHERE user = ? AND confirmed", (user,)
            ).fetchone()
        return row is not None

    def recovery_codes_left(self, user: str) -> int:
        """Return how many recovery codes a user has not used."""
        with self._lock:
            (count,) = self._connection.execute(
                "SELECT COUNT(*) FROM recovery_codes WHERE user = ?", (user,)
            ).fetchone()
        return int(count)

    def propose(self, user: str) -> str | None:
        """Return a new secret (base32), to be confirmed by a code; None if a factor is on."""
        secret = pyotp.random_base32()
        with self._lock:
            changed = self._connection.execute(
                "INSERT INTO second_factors (user, secret) VALUES (?, ?) ON CONFLICT (user) "
                "DO UPDATE SET secret = excluded.secret, last_step = 0 WHERE NOT confirmed",
                (user, secret),
            ).rowcount
        return secret if changed else None

    def confirm(self, user: str, code: str, now_s: float) -> list[str] | None:
        """Turn the proposed factor on, and return recovery codes; None if the code is wrong."""
        if not self._take_code(user, code, now_s, confirmed=False):
            return None
        codes = [_new_recovery_code() for _ in range(RECOVERY_CODES)]
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "UPDATE second_factors SET confirmed = 1 WHERE user = ?", (user,)
            )
            self._connection.execute("DELETE FROM recovery_codes WHERE user = ?", (user,))
            self._connection.executemany(
                "INSERT INTO recovery_codes (hash, user) VALUES (?, ?)",
                [(_recovery_hash(user, each), user) for each in codes],
            )
        return codes

    def take(self, user: str, code: str, now_s: float) -> bool:
        """Tell whether a code of the app, or a recovery code, is good; it is not a second time."""
        if self._take_code(user, code, now_s, confirmed=True):
            return True
        with self._lock:
            row = self._connection.execute(
                "DELETE FROM recovery_codes WHERE hash = ? AND user = ? RETURNING 1",
                (_recovery_hash(user, code), user),
            ).fetchone()
        return row is not None

    def forget(self, user: str) -> None:
        """Turn a user's second factor off."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for table in ("second_factors", "recovery_codes"):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE user = ?",  # noqa: S608
                    (user,),
                )

    def _take_code(self, user: str, code: str, now_s: float, *, confirmed: bool) -> bool:
        code = code.replace(" ", "")
        if not (code.isascii() and code.isdigit()):
            return False
        with self._lock:
            row = self._connection.execute(
                "SELECT secret, last_step FROM second_factors WHERE user = ? AND confirmed = ?",
                (user, int(confirmed)),
            ).fetchone()
            if row is None:
                return False
            totp, now = pyotp.TOTP(row[0]), int(now_s // STEP_S)
            steps = range(max(now - _STEPS_OFF, row[1] + 1), now + _STEPS_OFF + 1)
            found = [
                each for each in steps if pyotp.utils.strings_equal(code, totp.generate_otp(each))
            ]
            if not found:
                return False
            # Of two requests with the same code one changes the row.
            taken = self._connection.execute(
                "UPDATE second_factors SET last_step = ? WHERE user = ? AND last_step < ?",
                (found[0], user, found[0]),
            )
            return taken.rowcount == 1


def is_recovery_code(code: str) -> bool:
    """Tell whether a code can only be a recovery code, which nobody guesses."""
    return not code.replace(" ", "").isdigit()


def uri_of(user: str, secret: str, issuer: str) -> str:
    """Return the URI that sets up an app (otpauth:, as a QR code)."""
    return pyotp.TOTP(secret).provisioning_uri(name=user, issuer_name=issuer)


def _new_recovery_code() -> str:
    text = base64.b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


def _recovery_hash(user: str, code: str) -> str:
    plain = code.lower().replace("-", "").replace(" ", "")
    return hashlib.sha256(f"{user}\0{plain}".encode("utf-8", "surrogatepass")).hexdigest()
