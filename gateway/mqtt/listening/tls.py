"""TLS for the MQTT listener, and who a client certificate stands for."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from waylog.network.tls_files import load_authority, load_certificate


def server_context(
    certificate: Path, key: Path, client_ca: Path | None = None, client_crl: Path | None = None
) -> ssl.SSLContext:
    """A context for listening; raises ConfigError, which names the option, for files that are none.

    With `client_ca` clients may show a certificate that it has signed, in place of a password; with
    `client_crl` only one that this list of the same authority does not revoke.
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
    """The common name of what `SSLSocket.getpeercert` returns; None without a certificate."""
    for relative_name in (certificate or {}).get("subject", ()):
        for name, value in relative_name:
            if name == "commonName":
                return str(value)
    return None
