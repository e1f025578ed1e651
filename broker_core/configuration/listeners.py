"""The listeners of a broker: addresses, advertised addresses, and security settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from broker_core.security.access_tokens import token_settings
from broker_core.security.oauthbearer import OAUTHBEARER
from broker_core.security.sasl import PLAIN
from waylog.config import ConfigError, Endpoint, parse_endpoint
from waylog.kafka.connection.sasl import SaslCredentials
from waylog.network.local_accounts import parse_local_accounts

_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104
_SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_JAAS_LOGIN: Final = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_JAAS_USER: Final = re.compile(r'\buser_([^\s="]+)\s*=\s*"((?:[^"\\]|\\.)*)"')


class SecurityProtocol(Enum):
    """The security of a listener: with or without TLS, and with or without SASL login."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def uses_tls(self) -> bool:
        """Tell whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def uses_sasl(self) -> bool:
        """Tell whether clients log in with a user name."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


@dataclass(frozen=True)
class ListenerConfig:
    """One listener.

    `advertised` is the address that clients are told, None for the address it listens on.
    """

    name: str
    protocol: SecurityProtocol
    endpoint: Endpoint
    advertised: Endpoint | None
    #: `ssl.*` and `sasl.*` properties that apply to this listener.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    sasl_mechanisms: tuple[str, ...] = ()
    #: Passwords of SASL PLAIN by user.
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    session_ms_max: int = 0
    #: The uids that may connect from this machine; None allows all.
    local_accounts: frozenset[int] | None = None


DEFAULT_LISTENERS: Final = (
    ListenerConfig(
        "PLAINTEXT", SecurityProtocol.PLAINTEXT, Endpoint("127.0.0.1", 9092), advertised=None
    ),
)


def parse_listeners(given: Mapping[str, str]) -> tuple[ListenerConfig, ...]:
    """Read the listeners from a broker's properties; raises ConfigError.

    Listeners of controllers (`controller.listener.names`) are left out: clients do not use them.
    """
    text = given.get("listeners") or "PLAINTEXT://127.0.0.1:9092"
    protocols = _protocols(given)
    addresses = _addresses("listeners", text)
    advertised = _addresses("advertised.listeners", given.get("advertised.listeners", ""))
    names = given.get("controller.listener.names", "")
    controllers = {name.strip().upper() for name in names.split(",")}
    unknown = set(advertised) - set(addresses)
    if unknown:
        raise ConfigError(f"advertised.listeners: {min(unknown)} is not one of the listeners")
    listeners = tuple(
        _listener(name, endpoint, advertised.get(name), protocols, given)
        for name, endpoint in addresses.items()
        if name not in controllers
    )
    if not listeners:
        raise ConfigError("listeners: none is left for clients")
    ports = [each.endpoint.port for each in listeners if each.endpoint.port]
    if len(set(ports)) < len(ports):
        raise ConfigError(f"listeners={text}: each listener needs a port of its own")
    return listeners


def addresses_of(given: Mapping[str, str]) -> Mapping[str, Endpoint]:
    """Return the address of each listener, also of controllers, by name; raises ConfigError."""
    named = _addresses("listeners", given.get("listeners") or "PLAINTEXT://127.0.0.1:9092")
    # A broker that is no controller names here the listener by which it reaches controllers.
    words = given.get("controller.listener.names", "").split(",")
    others = {word.strip().upper(): Endpoint("", 0) for word in words if word.strip()}
    return others | named


def parse_controller_listener(given: Mapping[str, str]) -> ListenerConfig | None:
    """Return this node's listener for controller requests, None if it has none.

    Raises ConfigError.
    """
    names = [name.strip().upper() for name in given.get("controller.listener.names", "").split(",")]
    addresses = _addresses("listeners", given.get("listeners", ""))
    name = next((each for each in names if each in addresses), None)
    if name is None:
        return None
    # Kafka's default: a controller listener without a protocol is not protected.
    protocols = {name: SecurityProtocol.PLAINTEXT} | _protocols(given)
    endpoint = addresses[name]
    # This address is not advertised: other nodes have it from controller.quorum.voters.
    listener = _listener(name, endpoint, Endpoint("controller", endpoint.port), protocols, given)
    if listener.protocol.uses_sasl and PLAIN not in listener.sasl_mechanisms:
        # SCRAM credentials are in the metadata, which controllers cannot read before they connect.
        raise ConfigError(
            f"listener {name}: controllers know each other by certificates (SSL) or by SASL PLAIN"
        )
    return listener


def controller_tls(given: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the `ssl.*` properties of connections to controllers; None without encryption.

    Raises ConfigError.
    """
    name = given.get("controller.listener.names", "").split(",")[0].strip().upper()
    protocol = _protocols(given).get(name, SecurityProtocol.PLAINTEXT)
    return _properties_of(name, given) if protocol.uses_tls else None


def controller_login(given: Mapping[str, str]) -> SaslCredentials | None:
    """Return the login of this node at controllers, None if there is none; raises ConfigError."""
    name = given.get("controller.listener.names", "").split(",")[0].strip().upper()
    protocol = _protocols(given).get(name, SecurityProtocol.PLAINTEXT)
    if not protocol.uses_sasl:
        return None
    login = login_of(name, _properties_of(name, given), "sasl.mechanism.controller.protocol")
    if login.mechanism != PLAIN:
        raise ConfigError("sasl.mechanism.controller.protocol: PLAIN is expected")
    return login


def login_of(name: str, properties: Mapping[str, str], chosen_by: str) -> SaslCredentials:
    """Return the login of this node at other nodes' listeners; raises ConfigError.

    As in Kafka, `username` and `password` are in the same JAAS entry as the listener's users.
    """
    mechanism = properties.get(chosen_by, "")
    if mechanism not in _SASL_MECHANISMS:
        raise ConfigError(
            f"{chosen_by}={mechanism}: listener {name} needs one of {', '.join(_SASL_MECHANISMS)}"
        )
    entry = f"{mechanism.lower()}.sasl.jaas.config"
    jaas = properties.get(entry) or properties.get("sasl.jaas.config", "")
    words = {key: _unquoted(value) for key, value in _JAAS_LOGIN.findall(jaas)}
    if not words.get("username") or "password" not in words:
        raise ConfigError(
            f"listener.name.{name.lower()}.{entry} does not say as whom this node logs in: "
            'username="NAME" password="PASSWORD" is expected'
        )
    return SaslCredentials(mechanism, words["username"], words["password"])


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _addresses(what: str, text: str) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for word in text.split(","):
        if not word.strip():
            continue
        name, separator, address = word.strip().partition("://")
        name = name.upper()
        if not separator or not name:
            raise ConfigError(f"{what}: {word.strip()!r}: NAME://HOST:PORT is expected")
        if name in found:
            raise ConfigError(f"{what}: {name} is there twice")
        try:
            endpoint = parse_endpoint(address)
        except ConfigError as error:
            raise ConfigError(f"{what}: {error}") from None
        # In Kafka, `PLAINTEXT://:9092` means every address, not the loopback interface.
        found[name] = Endpoint("", endpoint.port) if address.startswith(":") else endpoint
    return found


def _protocols(given: Mapping[str, str]) -> dict[str, SecurityProtocol]:
    protocols = {protocol.value: protocol for protocol in SecurityProtocol}
    text = given.get("listener.security.protocol.map", "")
    for word in text.split(","):
        if not word.strip():
            continue
        name, separator, protocol = word.strip().partition(":")
        if not separator or protocol.upper() not in SecurityProtocol.__members__:
            raise ConfigError(
                f"listener.security.protocol.map: {word.strip()!r}: NAME:PROTOCOL is expected, "
                f"with one of {', '.join(SecurityProtocol.__members__)}"
            )
        protocols[name.upper()] = SecurityProtocol[protocol.upper()]
    return protocols


def _listener(
    name: str,
    endpoint: Endpoint,
    advertised: Endpoint | None,
    protocols: Mapping[str, SecurityProtocol],
    given: Mapping[str, str],
) -> ListenerConfig:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"listeners: {name} is not a security protocol "
            f"({', '.join(SecurityProtocol.__members__)}); say which it uses with "
            "listener.security.protocol.map"
        )
    if advertised is None and endpoint.host in _EVERYWHERE:
        raise ConfigError(
            f"advertised.listeners is needed for {name}: clients cannot connect to "
            f"{endpoint.host or '*'}"
        )
    if advertised is not None and advertised.host in _EVERYWHERE:
        raise ConfigError(f"advertised.listeners: {name} names no host")
    properties = _properties_of(name, given)
    mechanisms: tuple[str, ...] = ()
    users: dict[str, str] = {}
    if protocol.uses_sasl:
        mechanisms = _mechanisms(name, properties)
        if "PLAIN" in mechanisms:
            users = _plain_users(name, properties)
    text = properties.get("connections.max.reauth.ms", "0")
    if not text.isdigit():
        raise ConfigError(f"connections.max.reauth.ms={text}: milliseconds are expected")
    return ListenerConfig(
        name,
        protocol,
        endpoint,
        advertised,
        properties,
        mechanisms,
        users,
        int(text),
        _local_accounts(name, properties),
    )


def _local_accounts(name: str, properties: Mapping[str, str]) -> frozenset[int] | None:
    try:
        return parse_local_accounts(properties.get("local.accounts", ""))
    except ConfigError as error:
        raise ConfigError(f"local.accounts of listener {name}: {error}") from None


def _properties_of(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of one listener: `listener.name.NAME.ssl.x` overrides `ssl.x`."""
    wanted = (
        *("ssl.", "sasl.", "plain.", "scram-", "oauthbearer."),
        *("connections.max.reauth.ms", "local.accounts"),
    )
    properties = {key: value for key, value in given.items() if key.startswith(wanted)}
    prefix = f"listener.name.{name.lower()}."
    for key, value in given.items():
        if key.lower().startswith(prefix):
            properties[key[len(prefix) :]] = value
    return properties


def _mechanisms(name: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    text = properties.get("sasl.enabled.mechanisms", "")
    mechanisms = tuple(word.strip() for word in text.split(",") if word.strip())
    possible = (*_SASL_MECHANISMS, OAUTHBEARER)
    if not mechanisms or set(mechanisms) - set(possible):
        raise ConfigError(
            f"sasl.enabled.mechanisms={text}: listener {name} needs one or several of "
            f"{', '.join(possible)}"
        )
    if OAUTHBEARER in mechanisms:
        try:
            token_settings(properties)
        except ConfigError as error:
            raise ConfigError(f"listener {name}: {error}") from None
    return mechanisms


def _plain_users(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    jaas = properties.get("plain.sasl.jaas.config") or properties.get("sasl.jaas.config", "")
    users = {user: _unquoted(password) for user, password in _JAAS_USER.findall(jaas)}
    if not users:
        raise ConfigError(
            f"listener.name.{name.lower()}.plain.sasl.jaas.config has no user: "
            'PlainLoginModule required user_NAME="PASSWORD"; is expected'
        )
    return users
