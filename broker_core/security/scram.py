"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677), without I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple


class ScramMechanism(NamedTuple):
    """A SCRAM mechanism: its name, its number in Kafka's requests, its hash function."""

    name: str
    number: int
    digest: str

    @property
    def key_bytes(self) -> int:
        """Length of a salted password and of all keys."""
        return hashlib.new(self.digest).digest_size


SCRAM_MECHANISMS: Final = (
    ScramMechanism("SCRAM-SHA-256", 1, "sha256"),
    ScramMechanism("SCRAM-SHA-512", 2, "sha512"),
)
BY_NAME: Final = {mechanism.name: mechanism for mechanism in SCRAM_MECHANISMS}
BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS}

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
_NONCE_BYTES: Final = 24
_SALT_BYTES: Final = 24


class AuthenticationFailed(Exception):
    """The client could not be authenticated.

    The text goes to the client and does not tell whether the user exists.
    """


class ScramCredential(NamedTuple):
    """The stored form of a password, from which the password cannot be computed."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential_from_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Make a credential from AlterUserScramCredentials: the client has salted the password."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
    return ScramCredential(
        salt,
        hashlib.new(mechanism.digest, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", mechanism.digest),
        iterations,
    )


def credential_from_password(
    mechanism: ScramMechanism, password: str, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Make a credential from a password, with a new salt."""
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)
    return credential_from_salted(mechanism, salted, salt, iterations)


class CredentialLookup:
    """Finds credentials, and invents credentials for users that do not exist.

    Otherwise the response to a first message would tell which users exist. An invented credential
    stays the same for a user name while the process runs.
    """

    def __init__(self, find: Callable[[str, str], ScramCredential | None]) -> None:
        self._find = find
        self._secret = secrets.token_bytes(32)

    def find(self, mechanism: ScramMechanism, user: str) -> tuple[ScramCredential, bool]:
        """Return (credential, whether the user exists)."""
        found = self._find(mechanism.name, user)
        if found is not None:
            return found, True
        seed = hmac.digest(self._secret, user.encode(), "sha512")
        salt = seed[:_SALT_BYTES]
        key = seed[-mechanism.key_bytes :]
        return ScramCredential(salt, key, key, ITERATIONS_MIN), False


@dataclass(frozen=True, slots=True)
class _ClientFirst:
    gs2_header: bytes
    bare: str
    user: str
    nonce: str


_CLIENT_FIRST: Final = re.compile(
    r"(?P<gs2>(?:n|y),(?:a=(?P<authorization>[^,]+))?,)"
    r"(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[^,]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]+)"
    r",r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[^,]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


def _name(text: str) -> str:
    """Decode a `saslname`, where commas and equals signs are written as =2C and =3D."""
    if re.search(r"=(?!2C|3D)", text):
        raise AuthenticationFailed("the user name is not written as RFC 5802 says")
    return text.replace("=2C", ",").replace("=3D", "=")


def _parse_first(data: bytes) -> _ClientFirst:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the first SCRAM message is not UTF-8") from None
    match = _CLIENT_FIRST.fullmatch(text)
    if match is None:
        raise AuthenticationFailed("the first SCRAM message cannot be read")
    user = _name(match["user"])
    if match["authorization"] is not None and _name(match["authorization"]) != user:
        raise AuthenticationFailed("nobody may act for another user here")
    if "tokenauth=true" in match["extensions"].split(","):
        raise AuthenticationFailed("this broker has no delegation tokens")
    return _ClientFirst(match["gs2"].encode(), match["bare"], user, match["nonce"])


class ScramServer:
    """One exchange: `evaluate` takes the client's two messages and returns the responses.

    `user` is the authenticated user, None before the end.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        lookup: CredentialLookup,
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = new_nonce()
        self._first: _ClientFirst | None = None
        self._server_first = ""
        self._credential: tuple[ScramCredential, bool] | None = None
        self.user: str | None = None

    def evaluate(self, data: bytes) -> bytes:
        """Return the response to the client's next message; raises AuthenticationFailed."""
        if self.user is not None:
            raise AuthenticationFailed("the exchange is over")
        if self._first is None:
            return self._begin(data)
        return self._end(self._first, data)

    def _begin(self, data: bytes) -> bytes:
        first = self._first = _parse_first(data)
        self._credential = self._lookup.find(self._mechanism, first.user)
        credential = self._credential[0]
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={first.nonce}{self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _end(self, first: _ClientFirst, data: bytes) -> bytes:
        assert self._credential is not None
        credential, exists = self._credential
        failed = AuthenticationFailed(
            "Authentication failed during authentication due to invalid credentials with "
            f"SASL mechanism {self._mechanism.name}"
        )
        try:
            match = _CLIENT_FINAL.fullmatch(data.decode())
            if match is None:
                raise failed
            proof = base64.b64decode(match["proof"], validate=True)
            channel = base64.b64decode(match["channel"], validate=True)
        except (UnicodeDecodeError, binascii.Error):
            raise failed from None
        # The nonce is compared too: otherwise an old proof could be replayed (CVE-2024-56128).
        nonce_matches = hmac.compare_digest(
            match["nonce"].encode(), f"{first.nonce}{self._nonce}".encode()
        )
        message = f"{first.bare},{self._server_first},{match['without_proof']}".encode()
        digest = self._mechanism.digest
        signature = hmac.digest(credential.stored_key, message, digest)
        proof_matches = False
        if len(proof) == len(signature):
            client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
            proof_matches = hmac.compare_digest(
                hashlib.new(digest, client_key).digest(), credential.stored_key
            )
        if not (exists and nonce_matches and proof_matches and channel == first.gs2_header):
            raise failed
        self.user = first.user
        server_signature = hmac.digest(credential.server_key, message, digest)
        return b"v=" + base64.b64encode(server_signature)
