"""TLS: conversion of Kafka's `ssl.*` properties to contexts of Python's ssl module.

Keys and certificates are PEM, in files or in the properties themselves (KIP-651). Java key stores
are not supported: `keytool`/`openssl` convert them to PEM.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from waylog.config import ConfigError
from waylog.kafka.connection.tls import set_cipher_suites

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def server_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a listener; raises ConfigError.

    Properties: `ssl.keystore.location`, or `ssl.keystore.key` and `ssl.keystore.certificate.chain`;
    `ssl.key.password`; `ssl.truststore.location` or `ssl.truststore.certificates`;
    `ssl.client.auth`; `ssl.enabled.protocols`; `ssl.cipher.suites` in OpenSSL's names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A renegotiation costs the server far more than the client, and Kafka does not need it.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(context, properties)
    _load_key(context, properties)
    auth = properties.get("ssl.client.auth", "none")
    if auth not in _CLIENT_AUTH:
        raise ConfigError(f"ssl.client.auth={auth}: none, requested or required is expected")
    if auth != "none":
        _load_trust(context, properties)
    context.verify_mode = _CLIENT_AUTH[auth]
    set_cipher_suites(context, properties)
    return context


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a broker's own connections to others; raises ConfigError.

    The properties are those of a listener. The trust store must confirm the other broker's
    certificate, which must also match its host unless `ssl.endpoint.identification.algorithm` is
    empty.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, properties)
    if properties.get("ssl.keystore.location") or properties.get("ssl.keystore.key"):
        _load_key(context, properties)
    _load_trust(context, properties, ssl.Purpose.SERVER_AUTH)
    if not properties.get("ssl.endpoint.identification.algorithm", "https"):
        context.check_hostname = False
    return context


def _set_versions(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    text = properties.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or set(names) - set(_VERSIONS):
        raise ConfigError(f"ssl.enabled.protocols={text}: TLSv1.2 and TLSv1.3 are possible")
    context.minimum_version = min(_VERSIONS[name] for name in names)
    context.maximum_version = max(_VERSIONS[name] for name in names)


def _check_type(properties: Mapping[str, str], store: str) -> None:
    kind = properties.get(f"ssl.{store}.type", "PEM" if _is_inline(properties, store) else "JKS")
    if kind.upper() != "PEM":
        raise ConfigError(
            f"ssl.{store}.type={kind}: this broker reads PEM only; set ssl.{store}.type=PEM and "
            f"give a PEM file as ssl.{store}.location"
        )


def _is_inline(properties: Mapping[str, str], store: str) -> bool:
    names = {"keystore": "ssl.keystore.key", "truststore": "ssl.truststore.certificates"}
    return bool(properties.get(names[store]))


def _pem(text: str) -> str:
    r"""Convert PEM in one line of a property file, where a line end is written as \n."""
    return text.replace("\\n", "\n")


def _load_key(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    _check_type(properties, "keystore")
    password = properties.get("ssl.key.password")
    location = properties.get("ssl.keystore.location")
    key, chain = (
        properties.get("ssl.keystore.key"),
        properties.get("ssl.keystore.certificate.chain"),
    )
    if location:
        _load_chain(context, Path(location), password, "ssl.keystore.location")
        return
    if not key or not chain:
        raise ConfigError(
            "a TLS listener needs ssl.keystore.location (a PEM file with key and certificates), or "
            "ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    # OpenSSL's interface needs a file; this one is readable by the owner only and removed at once.
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(_pem(key) + "\n" + _pem(chain) + "\n")
            file.flush()
            _load_chain(context, Path(file.name), password, "ssl.keystore.key")
    except OSError as error:
        told = f"ssl.keystore.key: no temporary file can be made (TMPDIR): {error}"
        raise ConfigError(told) from None


def _load_chain(context: ssl.SSLContext, path: Path, password: str | None, name: str) -> None:
    try:
        # An empty password instead of None: otherwise OpenSSL would ask on the terminal.
        context.load_cert_chain(path, password=password or "")
    except ssl.SSLError as error:
        what = error.reason or "no private key, no certificate or the wrong password"
        raise ConfigError(f"{name}: key and certificates cannot be read: {what}") from None
    except OSError as error:
        raise ConfigError(f"{name}={path}: {error.strerror}") from None


def _load_trust(
    context: ssl.SSLContext,
    properties: Mapping[str, str],
    purpose: ssl.Purpose = ssl.Purpose.CLIENT_AUTH,
) -> None:
    location = properties.get("ssl.truststore.location")
    certificates = properties.get("ssl.truststore.certificates")
    if not location and not certificates:
        context.load_default_certs(purpose)
        return
    _check_type(properties, "truststore")
    try:
        if location:
            context.load_verify_locations(cafile=location)
        else:
            context.load_verify_locations(cadata=_pem(certificates or ""))
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.truststore: no certificates: {error.reason}") from None
    except OSError as error:
        raise ConfigError(f"ssl.truststore.location={location}: {error.strerror}") from None
