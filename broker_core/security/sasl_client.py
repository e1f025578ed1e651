"""The client's side of PLAIN and SCRAM, by which a broker logs in to another, without I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker_core.security.sasl import PLAIN
from broker_core.security.scram import BY_NAME, ITERATIONS_MIN, AuthenticationFailed, ScramMechanism

_NONCE_BYTES: Final = 24
#: Most SCRAM iterations; an impostor must not keep this process busy for long.
_ITERATIONS_MAX: Final = 1_000_000
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>\d{1,9})"
)


class SaslCredentials(NamedTuple):
    """The mechanism, user and password of a login."""

    mechanism: str
    user: str
    password: str


class ClientExchange(Protocol):
    """One login: send `first`, then what `evaluate` returns for each response, until None."""

    def first(self) -> bytes:
        """Return the first message."""

    def evaluate(self, data: bytes) -> bytes | None:
        """Return the next message, or None at the end. Raises AuthenticationFailed."""


class PlainClient:
    """PLAIN (RFC 4616)."""

    def __init__(self, credentials: SaslCredentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        """See ClientExchange."""
        return f"\0{self._credentials.user}\0{self._credentials.password}".encode()

    def evaluate(self, data: bytes) -> bytes | None:
        """See ClientExchange."""
        return None


class ScramClient:
    """SCRAM (RFC 5802), where the server also proves that it knows the password's hash."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: SaslCredentials,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._digest = mechanism.digest
        self._password = credentials.password.encode()
        self._nonce = new_nonce()
        name = credentials.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """See ClientExchange."""
        return f"n,,{self._bare}".encode()

    def evaluate(self, data: bytes) -> bytes | None:
        """See ClientExchange."""
        if self._signature is None:
            return self._proof(data)
        expected = b"v=" + base64.b64encode(self._signature)
        if not hmac.compare_digest(data, expected):
            raise AuthenticationFailed("the other broker does not know the password")
        return None

    def _proof(self, data: bytes) -> bytes:
        try:
            server_first = data.decode()
            match = _SERVER_FIRST.fullmatch(server_first)
            if match is None:
                raise ValueError
            salt = base64.b64decode(match["salt"], validate=True)
        except (ValueError, binascii.Error):
            raise AuthenticationFailed("the other broker's SCRAM message cannot be read") from None
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the other broker answers to another message")
        if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise AuthenticationFailed(f"the other broker wants {iterations} iterations")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        stored_key = hashlib.new(self._digest, client_key).digest()
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        message = f"{self._bare},{server_first},{without_proof}".encode()
        signature = hmac.digest(stored_key, message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._digest)
        self._signature = hmac.digest(server_key, message, self._digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def client_exchange(credentials: SaslCredentials) -> ClientExchange:
    """Begin a new login."""
    if credentials.mechanism == PLAIN:
        return PlainClient(credentials)
    return ScramClient(BY_NAME[credentials.mechanism], credentials)
