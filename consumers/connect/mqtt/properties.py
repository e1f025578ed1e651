"""The properties of MqttSource and MqttSink, named as Confluent's MQTT connectors name them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from consumers.connect.configuration.definitions import (
    ConfigDef,
    ConfigType,
    ConfigValue,
    Importance,
    grouped_key,
)
from consumers.connect.configuration.exceptions import (
    ConfigException,
    hidden_value,
    invalid_value,
)
from consumers.connect.configuration.password import HIDDEN, Password
from consumers.connect.configuration.validators import (
    all_of,
    between,
    non_empty,
    non_empty_list,
    one_of,
    topic_name,
)
from consumers.connect.mqtt.topics import filter_problem, format_problem
from waylog.config import ConfigError
from waylog.extras import install_command, is_installed
from waylog.network.tls.pem_files import load_authority, load_certificate

if TYPE_CHECKING:
    from waylog.network.outbound.mqtt_connection import MqttServer

URI: Final = "mqtt.server.uri"
USERNAME: Final = "mqtt.username"
PASSWORD: Final = "mqtt.password"  # noqa: S105 - the name of the property
VERSION: Final = "mqtt.version"
QOS: Final = "mqtt.qos"
CLIENT_ID: Final = "mqtt.client.id"
KEEP_ALIVE: Final = "mqtt.keepalive.interval.seconds"
CA: Final = "mqtt.ssl.ca.path"
CERTIFICATE: Final = "mqtt.ssl.certificate.path"
KEY: Final = "mqtt.ssl.key.path"
IN_FLIGHT: Final = "mqtt.max.in.flight"
TOPICS: Final = "mqtt.topics"
KAFKA_TOPIC: Final = "kafka.topic"
CLEAN_SESSION: Final = "mqtt.clean.session.enabled"
SESSION_EXPIRY: Final = "mqtt.session.expiry.seconds"
SHARE: Final = "mqtt.share.name"
TOPIC_FORMAT: Final = "mqtt.topic.format"
RETAINED: Final = "mqtt.retained.enabled"

_CONNECTION, _SESSION, _MAPPING = "Connection", "Session", "Mapping"
#: Schemes of the URI, with the usual port and whether they are of TLS.
_SCHEMES: Final = {
    "tcp": (1883, False),
    "mqtt": (1883, False),
    "ssl": (8883, True),
    "mqtts": (8883, True),
}
_CLIENT_ID_BYTES_MAX: Final = 65_535
_PROTOCOLS: Final = {"3.1.1": 4, "5": 5}


class _Server(msgspec.Struct, frozen=True):
    host: str
    port: int
    is_tls: bool


def _server(name: str, uri: str) -> _Server:
    """Return what a URI names; raises ConfigException, which shows nothing of it."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise hidden_value(name, "it is not a URI") from None
    usual = _SCHEMES.get(parts.scheme)
    if usual is None or not parts.hostname:
        raise hidden_value(name, "it has to be tcp://HOST:PORT, or ssl://HOST:PORT for TLS")
    if parts.username is not None:
        raise hidden_value(name, f"user and password belong into {USERNAME} and {PASSWORD}")
    return _Server(parts.hostname, port or usual[0], usual[1])


def _valid_uri(name: str, value: Any) -> None:
    if value is not None:
        _server(name, value)


def _valid_filters(name: str, value: Any) -> None:
    for each in value or ():
        problem = filter_problem(each)
        if problem is not None:
            raise invalid_value(name, each, problem)


def _valid_format(name: str, value: Any) -> None:
    problem = None if value is None else format_problem(value)
    if problem is not None:
        raise invalid_value(name, value, problem)


def _valid_share(name: str, value: Any) -> None:
    if value and any(each in value for each in "/+#"):
        raise invalid_value(name, value, "it may have no /, + and #")


_COMMON: Final = (
    grouped_key(
        *(URI, ConfigType.STRING, _CONNECTION, 1),
        "The server: tcp://HOST:1883, or ssl://HOST:8883 for TLS.",
        importance=Importance.HIGH,
        validator=_valid_uri,
    ),
    grouped_key(
        *(USERNAME, ConfigType.STRING, _CONNECTION, 2),
        "The user.",
        importance=Importance.HIGH,
        default=None,
    ),
    grouped_key(
        *(PASSWORD, ConfigType.PASSWORD, _CONNECTION, 3),
        "The user's password.",
        importance=Importance.HIGH,
        default=None,
    ),
    grouped_key(
        *(VERSION, ConfigType.STRING, _CONNECTION, 4),
        "The version of MQTT: 5, or 3.1.1.",
        importance=Importance.MEDIUM,
        default="5",
        validator=one_of(*_PROTOCOLS),
    ),
    grouped_key(
        *(KEEP_ALIVE, ConfigType.INT, _CONNECTION, 5),
        "Seconds after which a silent connection is asked whether it lives.",
        importance=Importance.LOW,
        default=30,
        validator=between(1, 65_535),
    ),
    grouped_key(
        *(CA, ConfigType.STRING, _CONNECTION, 6),
        "A file with the certificates that are trusted; without it those of the machine.",
        importance=Importance.LOW,
        default=None,
    ),
    grouped_key(
        *(CERTIFICATE, ConfigType.STRING, _CONNECTION, 7),
        "A file with the client's certificate.",
        importance=Importance.LOW,
        default=None,
    ),
    grouped_key(
        *(KEY, ConfigType.STRING, _CONNECTION, 8),
        "A file with the certificate's key; it has no password.",
        importance=Importance.LOW,
        default=None,
    ),
    grouped_key(
        *(CLIENT_ID, ConfigType.STRING, _SESSION, 1),
        "The client identifier, by which the server knows the session; waylog-NAME by default, "
        "with the number of the task behind it if there are several.",
        importance=Importance.MEDIUM,
        default="",
    ),
    grouped_key(
        *(QOS, ConfigType.INT, _SESSION, 2),
        "The quality of service: 0 may lose messages, 1 and 2 lose none.",
        importance=Importance.MEDIUM,
        default=1,
        validator=between(0, 2),
    ),
    grouped_key(
        *(IN_FLIGHT, ConfigType.INT, _SESSION, 3),
        "The most messages that are not acknowledged yet.",
        importance=Importance.LOW,
        default=1000,
        validator=between(1, 65_535),
    ),
)

SOURCE_CONFIG: Final = ConfigDef(
    [
        *_COMMON,
        grouped_key(
            *(TOPICS, ConfigType.LIST, _MAPPING, 1),
            "The topic filters that are subscribed to.",
            importance=Importance.HIGH,
            validator=all_of(non_empty_list, _valid_filters),
        ),
        grouped_key(
            *(KAFKA_TOPIC, ConfigType.STRING, _MAPPING, 2),
            "The topic that gets the messages; their MQTT topics are the keys.",
            importance=Importance.HIGH,
            default="mqtt",
            validator=all_of(non_empty, topic_name),
        ),
        grouped_key(
            *(CLEAN_SESSION, ConfigType.BOOLEAN, _SESSION, 4),
            "Whether the server forgets the session with the connection: what comes meanwhile is "
            "lost then.",
            importance=Importance.MEDIUM,
            default=False,
        ),
        grouped_key(
            *(SESSION_EXPIRY, ConfigType.LONG, _SESSION, 5),
            "Seconds for which a server of MQTT 5 keeps the session while the worker is away.",
            importance=Importance.MEDIUM,
            default=7 * 86_400,
            validator=between(0, 2**32 - 1),
        ),
        grouped_key(
            *(SHARE, ConfigType.STRING, _SESSION, 6),
            "A shared subscription ($share/NAME/...), which several tasks divide among each other.",
            importance=Importance.LOW,
            default="",
            validator=_valid_share,
        ),
    ]
)
SINK_CONFIG: Final = ConfigDef(
    [
        *_COMMON,
        grouped_key(
            *(TOPIC_FORMAT, ConfigType.STRING, _MAPPING, 1),
            "The MQTT topic of a record, in which ${topic} and ${key} are filled in.",
            importance=Importance.HIGH,
            default="${topic}",
            validator=_valid_format,
        ),
        grouped_key(
            *(RETAINED, ConfigType.BOOLEAN, _MAPPING, 2),
            "Whether the server retains messages. A record without a value then ends what it "
            "retains.",
            importance=Importance.MEDIUM,
            default=False,
        ),
    ]
)


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached, parsed."""

    host: str
    port: int
    is_tls: bool
    ca: str | None
    certificate: str | None
    key: str | None
    username: str | None
    password: Password | None
    version: int  # paho's number of the protocol
    keep_alive_s: int
    client_id: str
    qos: int
    in_flight_max: int
    clean_session: bool
    session_expiry_s: int

    @property
    def address(self) -> str:
        """Host and port, for messages."""
        return f"{self.host}:{self.port}"

    @staticmethod
    def of(parsed: Mapping[str, Any], name: str) -> Connection:
        """Return what parsed properties say; `name` is the connector's. Raises ConfigException."""
        server = _server(URI, parsed[URI])
        client_id = parsed[CLIENT_ID] or f"waylog-{name}"
        if len(client_id.encode()) > _CLIENT_ID_BYTES_MAX:
            raise hidden_value(CLIENT_ID, f"at most {_CLIENT_ID_BYTES_MAX} bytes")
        return Connection(
            host=server.host,
            port=server.port,
            is_tls=server.is_tls,
            ca=parsed[CA],
            certificate=parsed[CERTIFICATE],
            key=parsed[KEY],
            username=parsed[USERNAME],
            password=parsed[PASSWORD],
            version=_PROTOCOLS[parsed[VERSION]],
            keep_alive_s=parsed[KEEP_ALIVE],
            client_id=client_id,
            qos=parsed[QOS],
            in_flight_max=parsed[IN_FLIGHT],
            clean_session=parsed.get(CLEAN_SESSION, True),
            session_expiry_s=parsed.get(SESSION_EXPIRY, 0),
        )

    def server(self) -> MqttServer:
        """Return the server for a client; raises ConfigException.

        It needs paho-mqtt, without which a configuration can still be checked.
        """
        from waylog.network.outbound.mqtt_connection import MqttServer

        return MqttServer(
            host=self.host,
            port=self.port,
            client_id=self.client_id,
            version=self.version,
            user=self.username,
            password=None if self.password is None else self.password.value,
            tls=self.tls_context(),
            keep_alive_s=self.keep_alive_s,
            clean_session=self.clean_session,
            session_expiry_s=self.session_expiry_s,
            in_flight_max=self.in_flight_max,
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Return how TLS is spoken, None without; raises ConfigException."""
        if not self.is_tls:
            return None
        try:
            if self.ca is not None:
                load_authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), Path(self.ca), CA)
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                key = None if self.key is None else Path(self.key)
                load_certificate(
                    context, Path(self.certificate), key, option=CERTIFICATE, key_option=KEY
                )
        except ConfigError as error:
            raise ConfigException(str(error)) from error
        return context


def contradictions(parsed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return properties that do not go with others, each with the reason."""
    found: list[tuple[str, str]] = []
    if parsed[PASSWORD] is not None and not parsed[USERNAME]:
        found.append((USERNAME, f"{PASSWORD} needs it"))
    if parsed.get(SHARE) and parsed[VERSION] == "3.1.1":
        found.append((SHARE, f"{VERSION}=5 is needed"))
    if parsed[KEY] is not None and parsed[CERTIFICATE] is None:
        found.append((CERTIFICATE, f"{KEY} needs it"))
    return found


def checked(config: ConfigDef, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return parsed properties that go together; raises ConfigException."""
    parsed = config.parse(properties)
    for name, reason in contradictions(parsed):
        raise invalid_value(name, parsed[name], reason)
    return parsed


def validated(config: ConfigDef, properties: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return what there is to say about each property, and about those that contradict."""
    found = config.validate(properties)
    if found[URI].errors:
        found[URI].value = None if found[URI].value is None else HIDDEN
    parsed = {name: each.value for name, each in found.items()}
    for name, reason in contradictions(parsed):
        found[name].errors.append(str(invalid_value(name, parsed[name], reason)))
    if not is_installed("bridge"):
        text = f"MQTT needs a library that is not installed: {install_command('bridge')}"
        found[URI].errors.append(text)
    return found
