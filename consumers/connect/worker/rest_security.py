"""How the REST interface is secured: TLS by `listeners=https://...`, passwords by an extension.

The names are those of Kafka Connect: `listeners.https.ssl.*` if there is any of them, else `ssl.*`.
Workers ask each other with the same certificate and authorities.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.configuration.plugin_properties import with_prefix
from consumers.connect.java.properties_file import PropertiesError, parse_properties
from waylog.config import ConfigError, Endpoint, parse_endpoint
from waylog.kafka.connection.properties import client_properties
from waylog.kafka.connection.tls import client_context, server_context

EXTENSIONS: Final = "rest.extension.classes"
CREDENTIALS_FILE: Final = "rest.basic.auth.credentials.file"
_BASIC: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
_OF_LISTENERS: Final = "listeners.https."
_CLIENT_AUTH: Final = "ssl.client.auth"
_CLIENT_CHOICES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class RestListener(NamedTuple):
    """Where the REST interface listens."""

    endpoint: Endpoint
    is_tls: bool = False

    @property
    def scheme(self) -> str:
        """The scheme of its URLs."""
        return "https" if self.is_tls else "http"


class RestSecurity(NamedTuple):
    """What listeners and requests between workers use."""

    server: ssl.SSLContext | None = None  # None: no listener has TLS
    client: ssl.SSLContext | None = None
    #: The passwords of users; None: there is no login.
    credentials: Mapping[str, str] | None = None


def parse_listener(text: str) -> RestListener:
    """Return the address of `http://HOST:PORT` or `https://HOST:PORT`.

    An empty host is all addresses of the machine. Raises ConfigException.
    """
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise invalid_value("listeners", text, str(error)) from error
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https") or parts.path.strip("/") or parts.query:
        raise invalid_value(
            "listeners", text, "Listener URLs are http://HOST:PORT or https://HOST:PORT"
        )
    try:
        endpoint = parse_endpoint(parts.netloc)
    except ConfigError as error:
        raise invalid_value("listeners", text, str(error)) from error
    if parts.netloc.startswith(":"):
        endpoint = Endpoint("", endpoint.port)
    return RestListener(endpoint, scheme == "https")


def rest_security(properties: Mapping[str, str], listeners: Sequence[RestListener]) -> RestSecurity:
    """Return what a worker's properties say; raises ConfigException."""
    credentials = _credentials(properties)
    own = {
        name: text
        for name, text in with_prefix(properties, _OF_LISTENERS).items()
        if name.startswith("ssl.")
    } or {name: text for name, text in properties.items() if name.startswith("ssl.")}
    if not any(each.is_tls for each in listeners):
        return RestSecurity(credentials=credentials)
    choice = own.pop(_CLIENT_AUTH, "none").lower()
    if choice not in _CLIENT_CHOICES:
        raise invalid_value(_CLIENT_AUTH, choice, "none, requested or required is expected")
    try:
        translated = client_properties(own)
        return RestSecurity(
            server_context(translated, _CLIENT_CHOICES[choice]),
            client_context(translated),
            credentials,
        )
    except ConfigError as error:
        raise ConfigException(f"listeners with https: {error}") from error


def _credentials(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the passwords of users, as Kafka's PropertyFileLoginModule reads them."""
    classes = [each.strip() for each in properties.get(EXTENSIONS, "").split(",") if each.strip()]
    for each in classes:
        if each not in (_BASIC, _BASIC.rpartition(".")[2]):
            raise invalid_value(EXTENSIONS, each, f"only {_BASIC} is known here")
    path = properties.get(CREDENTIALS_FILE, "")
    if not classes:
        if path:
            raise invalid_value(CREDENTIALS_FILE, path, f"it needs {EXTENSIONS}={_BASIC}")
        return None
    if not path:
        raise ConfigException(
            f"{EXTENSIONS}={classes[0]} needs {CREDENTIALS_FILE}: a file with USER=PASSWORD lines"
        )
    try:
        found = parse_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PropertiesError) as error:
        reason = getattr(error, "strerror", None) or error
        raise invalid_value(CREDENTIALS_FILE, path, str(reason)) from None
    if not found:
        raise invalid_value(CREDENTIALS_FILE, path, "there is no user in it")
    return found
