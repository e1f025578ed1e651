"""TLS of a client: converts `ssl.*` properties to a context of Python's ssl module.

The names are librdkafka's, which waylog.kafka.connection.properties makes of Java's. Keys and
certificates are PEM, in files or in the properties themselves (KIP-651).
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from waylog.config import ConfigError
from waylog.kafka.connection.properties import UnsupportedProperty

_HOSTNAME_CHECKS: Final = {"https": True, "none": False}
_TRUTHS: Final = {"true": True, "false": False}
#: What `client_context` heeds. A setting that it would silently leave out may be the one that
#: somebody's security depends on.
_KNOWN: Final = frozenset(
    {
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem",
        "ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.cipher.suites",
        "ssl.crl.location", "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a client's connections; raises ConfigError.

    Without an authority in the properties, those of the machine confirm the broker's certificate.
    The certificate has to name the broker's host, unless `ssl.endpoint.identification.algorithm` is
    `none`.
    """
    unknown = sorted(name for name in properties if name.startswith("ssl.") and name not in _KNOWN)
    if unknown:
        raise UnsupportedProperty(
            f"{', '.join(unknown)}: not supported; {', '.join(sorted(_KNOWN))} are"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = _choice(
        properties, "ssl.endpoint.identification.algorithm", "https", _HOSTNAME_CHECKS
    )
    if not _choice(properties, "enable.ssl.certificate.verification", "true", _TRUTHS):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_authorities(context, properties)
    _load_certificate(context, properties)
    set_cipher_suites(context, properties)
    return context


def server_context(properties: Mapping[str, str], client_auth: ssl.VerifyMode) -> ssl.SSLContext:
    """Return the context of a listener; raises ConfigError.

    `client_auth` says whether clients need a certificate of the authorities in the properties.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not any(name in properties for name in ("ssl.certificate.location", "ssl.certificate.pem")):
        raise ConfigError("ssl.keystore.location is missing: a PEM file with certificate and key")
    _load_certificate(context, properties)
    context.verify_mode = client_auth
    if client_auth is not ssl.CERT_NONE:
        _load_authorities(context, properties)
    set_cipher_suites(context, properties)
    return context


def set_cipher_suites(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Use `ssl.cipher.suites`, in OpenSSL's names, if it is given; raises ConfigError."""
    suites = properties.get("ssl.cipher.suites")
    if suites:
        try:
            context.set_ciphers(suites.replace(",", ":"))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites={suites}: OpenSSL knows none of them") from None


def authorities_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of requests over HTTPS (`https.ca.*`); raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_authorities(context, properties, "https")
    return context


def _choice(
    properties: Mapping[str, str], name: str, default: str, choices: Mapping[str, bool]
) -> bool:
    given = properties.get(name, default).lower()
    if given not in choices:
        raise ConfigError(f"{name}={given}: {' or '.join(choices)} is expected")
    return choices[given]


def _load_authorities(
    context: ssl.SSLContext, properties: Mapping[str, str], prefix: str = "ssl"
) -> None:
    location, inline = properties.get(f"{prefix}.ca.location"), properties.get(f"{prefix}.ca.pem")
    revoked = properties.get(f"{prefix}.crl.location")
    name = f"{prefix}.ca.location" if location else f"{prefix}.ca.pem"
    try:
        if location and location != "probe":
            is_folder = Path(location).is_dir()
            context.load_verify_locations(
                cafile=None if is_folder else location, capath=location if is_folder else None
            )
        elif inline:
            context.load_verify_locations(cadata=inline)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if revoked:
            name = f"{prefix}.crl.location"
            context.load_verify_locations(cafile=revoked)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError as error:
        given = "" if name.endswith(".pem") else f"={properties.get(name)}"
        raise ConfigError(
            f"{name}{given}: no certificates in it, PEM is expected ({error.reason})"
        ) from None
    except OSError as error:
        raise ConfigError(f"{name}={properties.get(name)}: {error.strerror}") from None


def _load_certificate(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    """Load the client's own certificate and key, if it has them."""
    with ExitStack() as stack:
        certificate = _file_of(properties, "ssl.certificate", stack)
        key = _file_of(properties, "ssl.key", stack)
        if certificate is None and key is None:
            return
        if certificate is None or key is None:
            missing = "ssl.certificate" if certificate is None else "ssl.key"
            raise ConfigError(f"{missing}.location or {missing}.pem is missing")
        try:
            # An empty password instead of None: otherwise OpenSSL would ask on the terminal.
            context.load_cert_chain(
                certificate, key, password=properties.get("ssl.key.password", "")
            )
        except ssl.SSLError as error:
            what = error.reason or "no private key, no certificate or the wrong password"
            raise ConfigError(f"ssl.key: key and certificate cannot be read: {what}") from None
        except OSError as error:
            raise ConfigError(f"{error.filename or certificate}: {error.strerror}") from None


def _file_of(properties: Mapping[str, str], name: str, stack: ExitStack) -> str | None:
    location, inline = properties.get(f"{name}.location"), properties.get(f"{name}.pem")
    if location:
        if not Path(location).is_file():
            raise ConfigError(f"{name}.location={location}: no such file")
        return location
    if not inline:
        return None
    # OpenSSL's interface needs a file; this one is readable by the owner only and removed at once.
    file = tempfile.NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115  the stack closes it
    stack.enter_context(file)
    file.write(inline)
    file.flush()
    return file.name
