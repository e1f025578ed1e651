"""How a client's connections are secured, from the properties of a file."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from waylog.config import ConfigError
from waylog.kafka.connection.login import Login, PasswordLogin, TokenLogin
from waylog.kafka.connection.properties import (
    ENVIRONMENT,
    UnsupportedProperty,
    configured_properties,
)
from waylog.kafka.connection.sasl import OAUTHBEARER, PLAIN, SCRAM_DIGESTS, SaslCredentials
from waylog.kafka.connection.tls import authorities_context, client_context

if TYPE_CHECKING:
    from waylog.kafka.connection.access_tokens import TokenEndpoint

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS: Final = (PLAIN, *SCRAM_DIGESTS, OAUTHBEARER)
_KERBEROS: Final = "GSSAPI"
_BEARER: Final = "sasl.oauthbearer."
#: Other names of the same properties.
_SAME: Final = {
    "sasl.mechanism": "sasl.mechanisms",
    f"{_BEARER}client.credentials.client.id": f"{_BEARER}client.id",
    f"{_BEARER}client.credentials.client.secret": f"{_BEARER}client.secret",
}
_KNOWN: Final = frozenset(
    {
        "sasl.mechanisms", "sasl.username", "sasl.password",
        *(f"{_BEARER}{name}" for name in (
            "method", "grant.type", "client.id", "client.secret", "scope", "extensions",
            "token.endpoint.url",
        )),
    }
)  # fmt: skip


@dataclass(frozen=True)
class ConnectionSecurity:
    """What a connection does before its first request: TLS, a login, both or neither."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None
    #: Where the properties come from, for messages.
    where: str = (
        "the properties of this client are in the file of --command-config where there is that "
        "option, or in the file that $WAYLOG_KAFKA_CONFIG names"
    )

    @property
    def protocol(self) -> str:
        """The value of `security.protocol`, in capitals."""
        transport = "PLAINTEXT" if self.tls is None else "SSL"
        return transport if self.login is None else f"SASL_{transport}"


#: Neither TLS nor a login.
PLAINTEXT: Final = ConnectionSecurity()


def connection_security(properties: Mapping[str, str]) -> ConnectionSecurity:
    """Return what `security.protocol` and its fellows ask for; raises ConfigError.

    The names are librdkafka's. Names that do not begin with `ssl.` or `sasl.` do not matter.
    """
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"security.protocol={protocol}: {', '.join(_PROTOCOLS)} (or in capitals) is expected"
        )
    return ConnectionSecurity(
        client_context(properties) if protocol.endswith("ssl") else None,
        _login(properties) if protocol.startswith("sasl") else None,
    )


def configured_security() -> ConnectionSecurity:
    """Return what the file of the environment asks for (WAYLOG_KAFKA_CONFIG); raises ConfigError.

    Reads the files that it names, so that a changed certificate counts for new clients.
    """
    properties = configured_properties()
    try:
        return connection_security(properties)
    except ConfigError as error:
        raise type(error)(f"{os.environ.get(ENVIRONMENT)}: {error}") from None


def check_configured_security() -> None:
    """Raise ConfigError if the file of the environment has mistakes, before a process starts."""
    # librdkafka may support what our own connections do not.
    with suppress(UnsupportedProperty):
        configured_security()


def _login(properties: Mapping[str, str]) -> Login:
    given = {
        _SAME.get(name, name): value
        for name, value in properties.items()
        if name.startswith("sasl.")
    }
    unknown = sorted(given.keys() - _KNOWN)
    if unknown:
        raise UnsupportedProperty(
            f"{', '.join(unknown)}: not supported; {', '.join(sorted(_KNOWN))} are"
        )
    mechanism = given.get("sasl.mechanisms", "").strip().upper()
    if mechanism not in _MECHANISMS:
        # librdkafka can do Kerberos.
        raise (UnsupportedProperty if mechanism == _KERBEROS else ConfigError)(
            f"sasl.mechanism={mechanism}: one of {', '.join(_MECHANISMS)} is expected"
        )
    if mechanism == OAUTHBEARER:
        from waylog.kafka.connection.access_tokens import TokenSource

        return TokenLogin(
            TokenSource(_token_endpoint(given, properties)),
            _extensions(given.get(f"{_BEARER}extensions", "")),
        )
    user, password = (_required(given, f"sasl.{name}") for name in ("username", "password"))
    if "\0" in user + password:
        raise ConfigError("sasl.username, sasl.password: no NUL character is expected")
    return PasswordLogin(SaslCredentials(mechanism, user, password))


def _required(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if not value:
        raise ConfigError(f"{name} is missing")
    return value


def _token_endpoint(given: Mapping[str, str], properties: Mapping[str, str]) -> TokenEndpoint:
    from waylog.kafka.connection.access_tokens import TokenEndpoint

    for name, only in (("method", "oidc"), ("grant.type", "client_credentials")):
        value = given.get(f"{_BEARER}{name}", only if name == "grant.type" else "")
        if value.lower() != only:
            raise ConfigError(f"{_BEARER}{name}={value}: {only} is expected")
    url = _required(given, f"{_BEARER}token.endpoint.url")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{_BEARER}token.endpoint.url: https://... is expected")
    return TokenEndpoint(
        url,
        _required(given, f"{_BEARER}client.id"),
        _required(given, f"{_BEARER}client.secret"),
        given.get(f"{_BEARER}scope", ""),
        authorities_context(properties) if parts.scheme == "https" else None,
    )


def _extensions(text: str) -> dict[str, str]:
    """Parse `name=value,name=value`; raises ConfigError."""
    extensions: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, separator, value = pair.strip().partition("=")
        if not (separator and name.isascii() and name.isalpha() and name != "auth") or not (
            value.isascii() and value.isprintable()
        ):
            raise ConfigError(f"{_BEARER}extensions: name=value,... is expected")
        extensions[name] = value
    return extensions
