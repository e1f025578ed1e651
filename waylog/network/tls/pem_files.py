"""Loads PEM files that options name; each error is one line that names the file."""

from __future__ import annotations

import ssl
from pathlib import Path

from waylog.config import ConfigError


def load_certificate(
    context: ssl.SSLContext, certificate: Path, key: Path | None, *, option: str, key_option: str
) -> None:
    """Load the certificate that a context presents; raises ConfigError.

    The key may be in the certificate's file.
    """
    check_readable(certificate, option)
    if key is not None:
        check_readable(key, key_option)
    try:
        # With no password given, OpenSSL would ask on the terminal for an encrypted key's.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            what = f"{key_option} {key or certificate}: it is not the key of {certificate}"
        elif not _is_certificate(certificate):
            what = f"{option} {certificate}: it is not a certificate in PEM"
        else:
            what = (
                f"{key_option} {key or certificate}: it is not a private key in PEM without a "
                "password"
            )
        raise ConfigError(what) from None


def load_authority(context: ssl.SSLContext, path: Path, option: str) -> None:
    """Load trusted certificates, or a revocation list, into a context; raises ConfigError."""
    check_readable(path, option)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{option} {path}: it is not in PEM") from None


def check_readable(path: Path, option: str) -> None:
    """Raise ConfigError for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None


def _is_certificate(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, ValueError):
        return False
    return True
