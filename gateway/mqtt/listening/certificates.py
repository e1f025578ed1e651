"""Listening with TLS: renewed certificates, and clients whose certificates are revoked."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from gateway.mqtt.listening.listener import MqttServer
from gateway.mqtt.listening.options import MqttOptions
from gateway.mqtt.listening.tls import server_context
from gateway.mqtt.packets.packets import ReasonCode
from waylog.config import ConfigError
from waylog.network.tls.certificate_dates import (
    DateWarnings,
    FileStamp,
    file_stamp,
    read_dates,
)
from waylog.process.background import spawn
from waylog.process.log_throttle import RepeatedFailure

logger = logging.getLogger(__name__)

#: Seconds between two checks of the files of certificates and of the revocation list.
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
    own = OwnCertificate(options.certificate, options.key)
    revocations = RevocationList(options.client_crl) if options.client_crl is not None else None
    context = server_context(
        options.certificate, options.key, options.client_ca, options.client_crl
    )
    await server.start_tls(options.tls, context, reuse_port=reuse_port)
    watching_own = spawn(
        own.watch(context, recheck_s), "looking for a renewed certificate", endless=True
    )
    stack.callback(watching_own.cancel)
    if revocations is not None:
        watching = spawn(
            revocations.watch(server, context, recheck_s),
            "looking for revoked certificates",
            endless=True,
        )
        stack.callback(watching.cancel)


class OwnCertificate:
    """The files of the certificate that the listener shows, from before they are loaded on."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._stamps = self._look()
        self._dates = read_dates(certificate)
        self._failure = RepeatedFailure()

    async def watch(self, context: ssl.SSLContext, recheck_s: float) -> None:
        """Show new connections a renewed certificate, and warn of its dates, until cancelled.

        Files that cannot be used are logged once and tried again, since a file may become readable
        without a change of it; meanwhile the previous ones stay in use. What there is
        to say of the dates at the start has been said by the command.
        """
        loop = asyncio.get_running_loop()
        warnings = DateWarnings()
        warnings.due(self._dates, datetime.now(UTC), loop.time())
        while True:
            await asyncio.sleep(recheck_s)
            stamps = self._look()
            if stamps != self._stamps and await self._load(context):
                self._stamps = stamps
            warning = warnings.due(self._dates, datetime.now(UTC), loop.time())
            if warning is not None:
                logger.warning("--tls-certificate %s: %s", self._certificate, warning)

    def _look(self) -> tuple[FileStamp, FileStamp]:
        return file_stamp(self._certificate), file_stamp(self._key)

    async def _load(self, context: ssl.SSLContext) -> bool:
        try:
            # Into another context at first: half of a pair would spoil this one.
            await asyncio.to_thread(server_context, self._certificate, self._key)
            context.load_cert_chain(self._certificate, self._key, password=lambda: b"")
        except (ConfigError, OSError, ValueError) as error:
            if self._failure.is_new(error):
                logger.error("the former certificate stays in use: %s", error)
            return False
        self._failure.succeeded()
        self._dates = await asyncio.to_thread(read_dates, self._certificate)
        logger.info("%s: a new certificate for new connections", self._certificate)
        return True


class RevocationList:
    """The file of the certificates that are revoked, from before it is loaded on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = file_stamp(path)
        self._failure = RepeatedFailure()

    async def watch(self, server: MqttServer, context: ssl.SSLContext, recheck_s: float) -> None:
        """Reload the list whenever its file changes, until cancelled.

        A list that cannot be read is logged once and tried again; meanwhile the previous one stays
        in force.
        """
        while True:
            await asyncio.sleep(recheck_s)
            stamp = file_stamp(self._path)
            if stamp is not None and stamp != self._stamp and await self._load(server, context):
                self._stamp = stamp

    async def _load(self, server: MqttServer, context: ssl.SSLContext) -> bool:
        try:
            revoked = await asyncio.to_thread(revoked_certificates, self._path)
            # Of several lists of one authority OpenSSL uses the newest.
            context.load_verify_locations(self._path)
        except (OSError, ValueError, x509.InvalidVersion) as error:
            if self._failure.is_new(error):
                logger.error(
                    "%s cannot be read as a list of revoked certificates, the former one holds: %s",
                    *(self._path, error),
                )
            return False
        self._failure.succeeded()
        end_revoked(server, revoked)
        return True


def revoked_certificates(path: Path) -> set[CertificateName]:
    """Return the certificates on a revocation list (PEM).

    Raises OSError, ValueError, x509.InvalidVersion.
    """
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
