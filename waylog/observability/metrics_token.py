"""The token for fetching metrics, which grants nothing else.

It is in a file that only its owner can read; Prometheus reads it from there.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "wlm_"
_CHARACTERS_MIN: Final = 16


def ensure_metrics_token(path: Path) -> str:
    """Return the token in a file; create the file, for its owner alone, if it is missing.

    Several processes may do so at once. Raises OSError, and ValueError if the token is too short.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; a file is expected", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # Complete before it gets its name, since another process may read it at once.
        aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(f"{_PREFIX}{secrets.token_urlsafe(32)}\n")
            with suppress(FileExistsError):
                os.link(aside, path)
        finally:
            aside.unlink()
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < _CHARACTERS_MIN:
        raise ValueError(f"{path} holds no token of {_CHARACTERS_MIN} characters or more")
    return token


def is_metrics_token(secret: str, token: str | None) -> bool:
    """Return whether a secret is the token; False if there is no token."""
    return token is not None and hmac.compare_digest(
        secret.encode("utf-8", "surrogatepass"), token.encode()
    )


def shown_secret(authorization: str) -> str:
    """Return the secret of an Authorization header, Bearer or Basic (with any name), else ""."""
    scheme, _, value = authorization.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
