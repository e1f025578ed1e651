"""Listening with TLS, and disconnecting clients whose certificates are revoked."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from gateway.mqtt.listening.listener import MqttServer
from gateway.mqtt.listening.options import MqttOptions
from gateway.mqtt.listening.tls import server_context
from gateway.mqtt.packets.packets import ReasonCode

logger = logging.getLogger(__name__)

#: Seconds between two checks of the revocation list's file.
RECHECK_S: Final = 1.0

#: A certificate is identified by its issuer and its serial number.
CertificateName = tuple[x509.Name, int]


async def listen_with_tls(
    server: MqttServer,
    options: MqttOptions,
    stack: AsyncExitStack,
    *,
    reuse_port: bool,
    recheck_s: float = RECHECK_S,
) -> None:
    """Listen with TLS if the options say so; raises OSError if the endpoint cannot be bound."""
    if options.tls is None or options.certificate is None or options.key is None:
        return
    context = server_context(
        options.certificate, options.key, options.client_ca, options.client_crl
    )
    await server.start_tls(options.tls, context, reuse_port=reuse_port)
    if options.client_crl is not None:
        watching = asyncio.create_task(
            watch_revocations(server, context, options.client_crl, recheck_s)
        )
        stack.callback(watching.cancel)


async def watch_revocations(
    server: MqttServer, context: ssl.SSLContext, path: Path, recheck_s: float
) -> None:
    """Reload the certificate revocation list whenever its file changes, until cancelled.

    A list that cannot be read is logged, and the previous one stays in force.
    """
    seen = _version(path)
    while True:
        await asyncio.sleep(recheck_s)
        version = _version(path)
        if version is None or version == seen:
            continue
        seen = version
        try:
            revoked = await asyncio.to_thread(revoked_certificates, path)
            # Of several lists of one authority OpenSSL uses the newest.
            context.load_verify_locations(path)
        except (OSError, ValueError) as error:
            logger.error("%s cannot be read as a list of revoked certificates: %s", path, error)
            continue
        end_revoked(server, revoked)


def certificate_trouble(path: Path, now: datetime) -> str | None:
    """Return why clients will not accept a certificate (PEM) now; None if its time is right."""
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError):
        return None  # told by those who load it
    if now > certificate.not_valid_after_utc:
        return f"it has expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc:
        return f"it is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
    return None


def _version(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def revoked_certificates(path: Path) -> set[CertificateName]:
    """Return the certificates on a revocation list (PEM); raises OSError or ValueError."""
    crl = x509.load_pem_x509_crl(path.read_bytes())
    return {(crl.issuer, each.serial_number) for each in crl}


def end_revoked(server: MqttServer, revoked: set[CertificateName]) -> None:
    """Disconnect the clients that have presented one of these certificates."""
    for session in list(server.router.sessions.values()):
        connection = session.connection
        if connection is None or connection.owner is None:
            continue
        if _certificate_of(connection.owner.transport) in revoked:
            connection.will = None
            connection.close(ReasonCode.NOT_AUTHORIZED, "the certificate was revoked")
    server.wake()


def _certificate_of(transport: Any) -> CertificateName | None:
    encrypted = transport.get_extra_info("ssl_object") if transport is not None else None
    encoded = encrypted.getpeercert(binary_form=True) if encrypted is not None else None
    if not encoded:
        return None
    certificate = x509.load_der_x509_certificate(encoded)
    return certificate.issuer, certificate.serial_number
