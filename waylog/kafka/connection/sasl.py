"""The client's side of SASL, without I/O: PLAIN, SCRAM and OAUTHBEARER.

Brokers that log in to each other use it too.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
#: The hash function of each SCRAM mechanism.
SCRAM_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_NONCE_BYTES: Final = 24
_ITERATIONS_MIN: Final = 4096
#: An impostor must not keep this process busy for long.
_ITERATIONS_MAX: Final = 1_000_000
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>\d{1,9})"
)
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_REASON_MAX: Final = 200


class LoginRefused(ConnectionError):
    """A login has failed: the broker refuses it, or does not prove who it is itself."""


class LoginUnwanted(LoginRefused):
    """The broker's listener knows no logins."""


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """The mechanism, user and password of a login."""

    mechanism: str
    user: str
    password: str = field(repr=False)


class ClientExchange(Protocol):
    """One login: send `first`, then what `evaluate` returns for each response, until None."""

    def first(self) -> bytes:
        """Return the first message."""

    def evaluate(self, data: bytes) -> bytes | None:
        """Return the next message, or None at the end. Raises LoginRefused."""


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
        credentials: SaslCredentials,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._digest = SCRAM_DIGESTS[credentials.mechanism]
        self._password = credentials.password.encode()
        self._nonce = new_nonce()
        name = credentials.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        """See ClientExchange."""
        return f"n,,{self._bare}".encode()

    def evaluate(self, data: bytes) -> bytes | None:
        """See ClientExchange. The first call takes milliseconds: it salts the password."""
        if self._signature is None:
            return self._proof(data)
        expected = b"v=" + base64.b64encode(self._signature)
        if not hmac.compare_digest(data, expected):
            raise LoginRefused("the broker does not know the password")
        return None

    def _proof(self, data: bytes) -> bytes:
        try:
            server_first = data.decode()
            match = _SERVER_FIRST.fullmatch(server_first)
            if match is None:
                raise ValueError
            salt = base64.b64decode(match["salt"], validate=True)
        except (ValueError, binascii.Error):
            raise LoginRefused("the broker's SCRAM message cannot be read") from None
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginRefused("the broker answers to another message")
        if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise LoginRefused(f"the broker wants {iterations} iterations")
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


class BearerClient:
    """OAUTHBEARER (RFC 7628): an access token, and extensions of it (KIP-342)."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """Raises LoginRefused for a token that cannot be sent."""
        if not _TOKEN.fullmatch(token):
            raise LoginRefused("the access token has characters that no token has")
        self._token = token
        self._extensions = dict(extensions or {})
        self._refused: str | None = None

    def first(self) -> bytes:
        """See ClientExchange."""
        more = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token}\x01{more}\x01".encode()

    def evaluate(self, data: bytes) -> bytes | None:
        """See ClientExchange."""
        if self._refused is not None:
            raise LoginRefused(self._refused)
        if not data:
            return None
        # The server has told its reason as JSON, and fails the login after this message.
        self._refused = f"the broker refuses the access token: {_status(data)}"
        return b"\x01"


def _status(data: bytes) -> str:
    try:
        return readable(str(json.loads(data)["status"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return "no reason is given"


def readable(text: str) -> str:
    """Return what a peer says in a form that is safe in a line of a log."""
    return "".join(each if each.isprintable() else "?" for each in text[:_REASON_MAX])


def client_exchange(credentials: SaslCredentials) -> ClientExchange:
    """Begin a new login with a password."""
    if credentials.mechanism == PLAIN:
        return PlainClient(credentials)
    return ScramClient(credentials)
