"""The key with which workers sign requests to each other, and the signatures (KIP-507).

The leader makes a key from time to time and writes it to the topic of configurations, which only
workers can read. So somebody who reaches a worker's REST interface cannot write tasks.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from consumers.connect.herder.refusals import BadRequest, Forbidden, Refused
from consumers.connect.storage.config_records import SessionKey

SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"
#: Java's names, those of hashlib, and the bytes of a key that Java makes for each.
ALGORITHMS: Final = {
    "HmacSHA1": ("sha1", 64),
    "HmacSHA224": ("sha224", 28),
    "HmacSHA256": ("sha256", 32),
    "HmacSHA384": ("sha384", 48),
    "HmacSHA512": ("sha512", 64),
}


class NoKeyYet(Refused):
    """This worker has not read a session key."""

    status = 503


def make_key(algorithm: str, size_bits: int | None, now_ms: int) -> SessionKey:
    """Return a new key."""
    size = ALGORITHMS[algorithm][1] if size_bits is None else size_bits // 8
    return SessionKey(secrets.token_bytes(size), algorithm, now_ms)


def signature_headers(key: SessionKey, algorithm: str, body: bytes) -> dict[str, str]:
    """Return the headers that sign a body."""
    return {
        SIGNATURE_HEADER: base64.b64encode(_sign(key, algorithm, body)).decode(),
        ALGORITHM_HEADER: algorithm,
    }


def check_signature(
    headers: Mapping[str, str], body: bytes, key: SessionKey | None, allowed: tuple[str, ...]
) -> None:
    """Raise Refused unless a worker has signed the body."""
    text, algorithm = headers.get(SIGNATURE_HEADER), headers.get(ALGORITHM_HEADER)
    if text is None or algorithm is None:
        raise BadRequest("Internal request missing required signature")
    if algorithm not in allowed or algorithm not in ALGORITHMS:
        raise BadRequest(
            f"This worker does not support the '{algorithm}' key signing algorithm used by other "
            f"workers. This worker is currently configured to use: [{', '.join(allowed)}]. Check "
            "that all workers' configuration files permit the same set of signature algorithms, "
            "and correct any misconfigured worker and restart it."
        )
    try:
        signature = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(str(error)) from error
    if key is None:
        raise NoKeyYet(
            "This worker is still starting up and has not been able to read a session key from the "
            "config topic yet"
        )
    if not hmac.compare_digest(_sign(key, algorithm, body), signature):
        raise Forbidden("Internal request contained invalid signature.")


def _sign(key: SessionKey, algorithm: str, body: bytes) -> bytes:
    return hmac.digest(key.key, body, ALGORITHMS[algorithm][0])
