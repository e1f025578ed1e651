"""SCRAM verifiers (RFC 5802, section 3), which prove knowledge of a token without revealing it.

A verifier is stored for each token when the token is made. There are none for passwords: the 4096
iterations that phones can afford do not protect a guessable secret, and would make its argon2id
hash useless.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS scram_verifiers (
    credential TEXT PRIMARY KEY REFERENCES credentials (hash) ON DELETE CASCADE,
    salt BLOB NOT NULL,
    stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL,
    iterations INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""


class Verifier(NamedTuple):
    """The SCRAM verifier of one token."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def verifier_of(token: str) -> Verifier:
    """Return a verifier with a new salt; takes some milliseconds."""
    from scramp import ScramMechanism

    return Verifier(*ScramMechanism(MECHANISM).make_auth_info(token, ITERATIONS))


def keep(connection: sqlite3.Connection, credential: str, verifier: Verifier) -> None:
    """Store the verifier of a credential, by the credential's hash."""
    connection.execute(
        "INSERT INTO scram_verifiers (credential, salt, stored_key, server_key, iterations) "
        "VALUES (?, ?, ?, ?, ?)",
        (credential, *verifier),
    )


def newest(
    connection: sqlite3.Connection, user: str, device: str | None
) -> tuple[str, Verifier] | None:
    """Return hash and verifier of the newest token of a user, or of one of its devices."""
    row = connection.execute(
        "SELECT v.credential, v.salt, v.stored_key, v.server_key, v.iterations "
        "FROM scram_verifiers v JOIN credentials c ON c.hash = v.credential "
        "WHERE c.user = ? AND c.device IS ? ORDER BY c.created DESC LIMIT 1",
        (user, device),
    ).fetchone()
    return None if row is None else (row[0], Verifier(*row[1:]))
