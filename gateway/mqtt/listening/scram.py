"""SCRAM-SHA-256 (RFC 5802, RFC 7677) for tokens: a client proves it has one without sending it.


The verifiers are in gateway.users.scram_verifiers.
"""

from __future__ import annotations

import hmac
import sqlite3
from typing import TYPE_CHECKING, Final

from gateway.mqtt.interfaces import Mechanism, Progress, Proof, ProofRefused
from gateway.users.auth import Identity
from gateway.users.scram_verifiers import ITERATIONS, MECHANISM

if TYPE_CHECKING:
    from gateway.users.database import UserStore

_MESSAGE_BYTES_MAX: Final = 4096


class ScramMechanism(Mechanism):
    """SCRAM-SHA-256 with the verifiers in the database of users.

    The SCRAM user name is USER, for the newest token of the user, or USER/DEVICE, for the newest
    token of that device.
    """

    name = MECHANISM

    def __init__(self, store: UserStore) -> None:
        self._store = store
        # Derives one constant salt for each unknown name, so that it looks like a known one.
        self._decoy_key = store.rights.secret("scram-decoy")

    def begin(self) -> Proof:
        """Begin the authentication of a client."""
        return _ScramProof(self._store, self._decoy_key)


class _ScramProof(Proof):
    """The authentication of one client: client-first message, then client-final message."""

    def __init__(self, store: UserStore, decoy_key: bytes) -> None:
        from scramp import ScramMechanism as Mechanism

        self._store = store
        self._decoy_key = decoy_key
        self._server = Mechanism(MECHANISM).make_server(self._verifier)
        self._identity: Identity | None = None
        self._asked = False

    async def step(self, data: bytes) -> Progress:
        """Handle a message of the client; raises ProofRefused."""
        from scramp import ScramException

        if len(data) > _MESSAGE_BYTES_MAX:
            raise ProofRefused("a SCRAM message is too long")
        try:
            message = data.decode()
            if not self._asked:
                self._asked = True
                self._server.set_client_first(message)
                return Progress(self._server.get_server_first().encode())
            self._server.set_client_final(message)
        except (ScramException, ValueError, LookupError) as error:
            # The details of a failure would only help attackers.
            raise ProofRefused("unknown user or wrong token") from error
        if self._identity is None:
            raise ProofRefused("unknown user or wrong token")
        return Progress(self._server.get_server_final().encode(), self._identity)

    def _verifier(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        try:
            found = self._store.scram_verifier(name)
        except sqlite3.Error:
            found = None
        if found is None:
            salt = hmac.digest(self._decoy_key, name.encode(), "sha256")
            return salt, bytes(32), bytes(32), ITERATIONS
        credential, verifier = found
        self._identity = Identity(
            credential.user,
            credential.device,
            credential.admin,
            credential.rights,
            credential.hash,
        )
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations


def mechanisms_over(store: UserStore, *, open_mode: bool) -> tuple[Mechanism, ...]:
    """Return the mechanisms for MQTT 5 clients; none in open mode, which verifies nobody."""
    return () if open_mode else (ScramMechanism(store),)
