"""Properties of Kafka clients: how they log in, and which certificates they trust.

They come from a property file, with librdkafka's names or those of Kafka's Java clients, so that a
file for `kafka-topics --command-config` works here too. `WAYLOG_KAFKA_CONFIG` names the file for
all processes of the platform.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    ConfigError,
    check_bootstrap_servers,
    load_properties,
)

ENVIRONMENT: Final = "WAYLOG_KAFKA_CONFIG"


_SERVERS: Final = "bootstrap.servers"


class UnsupportedProperty(ConfigError):
    """A property of security that our own connections do not heed; librdkafka may."""


_SAME: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
}
#: Properties of Java clients that have no counterpart, or are translated separately below.
_DROPPED: Final = frozenset(
    {
        "sasl.jaas.config", "ssl.keystore.type", "ssl.truststore.type", "ssl.keystore.location",
        "ssl.keystore.password", "ssl.truststore.password", "ssl.enabled.protocols", "ssl.protocol",
        "sasl.client.callback.handler.class", "key.serializer", "value.serializer",
        "key.deserializer", "value.deserializer", "default.api.timeout.ms",
        # `choose_bootstrap_servers` heeds it.
        _SERVERS,
    }
)  # fmt: skip
_FILE: Final = re.compile(r"(ssl|https)\..*\.location")
_CREDENTIAL: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Translate properties of either kind to librdkafka's; raises ConfigError."""
    properties = {
        _SAME.get(name, name): value for name, value in given.items() if name not in _DROPPED
    }
    for store in ("keystore", "truststore"):
        kind = given.get(f"ssl.{store}.type")
        location = given.get(f"ssl.{store}.location", "")
        if (kind is not None and kind.upper() != "PEM") or location.endswith((".jks", ".p12")):
            raise ConfigError(f"ssl.{store}: PEM is expected, not {kind or location}")
    if "ssl.keystore.location" in given:
        # Kafka's PEM key stores have the key and the certificates in one file.
        properties["ssl.certificate.location"] = given["ssl.keystore.location"]
        properties["ssl.key.location"] = given["ssl.keystore.location"]
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"]
        properties["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    for name, value in _CREDENTIAL.findall(given.get("sasl.jaas.config", "")):
        properties.setdefault(f"sasl.{name}", re.sub(r"\\(.)", r"\1", value))
    for name in ("ssl.key.pem", "ssl.certificate.pem", "ssl.ca.pem"):
        if name in properties:
            properties[name] = properties[name].replace("\\n", "\n")
    return properties


def load_client_properties(path: Path) -> dict[str, str]:
    """Read a client's properties from a file; raises ConfigError."""
    return sourced_properties(load_properties(path), str(path))


def sourced_properties(given: Mapping[str, str], source: str) -> dict[str, str]:
    """Translate properties and check the files that they name.

    `source` is where they were given. Raises ConfigError, which names it.
    """
    try:
        properties = client_properties(given)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    for name, value in given.items():
        if _FILE.fullmatch(name) and value and value != "probe":
            _check_file(f"{source}: {name}={value}", Path(value))
    return properties


def _check_file(what: str, path: Path) -> None:
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        else:
            path.open("rb").close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{what}: a PEM file that can be read is expected ({reason})") from None


def configured_properties() -> dict[str, str]:
    """Return the properties of the file that the environment names; none without it."""
    path = os.environ.get(ENVIRONMENT)
    return load_client_properties(Path(path)) if path else {}


def choose_bootstrap_servers(arguments: argparse.Namespace) -> None:
    """Set the brokers of a command whose option --bootstrap-servers was not given.

    The option wins. Without it `bootstrap.servers` of the client's properties counts: of -X, else
    of the file of --command-config, else of the file that the environment names; without that the
    option's default. Nothing else reads that property. Raises ConfigError, which names the source.
    """
    if getattr(arguments, "bootstrap_servers", None) is not DEFAULT_BOOTSTRAP_SERVERS:
        return
    for word in getattr(arguments, "properties", ()):
        name, _, servers = word.partition("=")
        if name == _SERVERS:
            arguments.bootstrap_servers = _checked(servers, "-X")
            return
    environment = os.environ.get(ENVIRONMENT)
    for file in (getattr(arguments, "command_config", None), environment):
        servers = load_properties(Path(file)).get(_SERVERS, "") if file else ""
        if servers:
            arguments.bootstrap_servers = _checked(servers, str(file))
            return


def _checked(servers: str, source: str) -> str:
    try:
        check_bootstrap_servers(servers)
    except ConfigError:
        raise ConfigError(
            f"{source}: {_SERVERS}={servers}: HOST:PORT,HOST:PORT... is expected"
        ) from None
    return servers
