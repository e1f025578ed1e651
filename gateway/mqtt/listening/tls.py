"""TLS for the MQTT listener, and the user name in a client certificate."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from waylog.network.tls.pem_files import load_authority, load_certificate


def server_context(
    certificate: Path, key: Path, client_ca: Path | None = None, client_crl: Path | None = None
) -> ssl.SSLContext:
    """Return a context for listening; raises ConfigError, which names the option, for bad files.

    With `client_ca`, clients may present a certificate signed by it in place of a password. With
    `client_crl`, certificates revoked on this list of the same authority are refused.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, certificate, key, option="--tls-certificate", key_option="--tls-key")
    if client_ca is not None:
        load_authority(context, client_ca, "--tls-client-ca")
        context.verify_mode = ssl.CERT_OPTIONAL
    if client_crl is not None:
        load_authority(context, client_crl, "--tls-client-crl")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Return the common name in the result of `SSLSocket.getpeercert`, or None without one."""
    for relative_name in (certificate or {}).get("subject", ()):
        for name, value in relative_name:
            if name == "commonName":
                return str(value)
    return None
