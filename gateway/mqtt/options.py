"""The options of `waylog gateway` that are the MQTT listener's."""

from __future__ import annotations

import argparse
import resource
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway.mqtt.mapping import TopicRule, parse_rule
from gateway.mqtt.settings import Settings
from waylog.config import ConfigError, Endpoint, parse_endpoint

#: Files of a process that are no MQTT connections: the log's, HTTP's, the database's.
_OTHER_FILES: Final = 1000


@dataclass(frozen=True)
class MqttOptions:
    """What the listener is told on the command line."""

    tls: Endpoint | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    client_crl: Path | None = None
    settings: Settings = field(default_factory=Settings)
    mapping: tuple[TopicRule, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options beside --mqtt itself."""
    add = parser.add_argument
    add("--mqtts", metavar="H:P", help="address for MQTT over TLS, usually port 8883")
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM, with what leads to its root")
    add("--tls-key", type=Path, metavar="FILE", help="PEM")
    add(
        "--tls-client-ca",
        type=Path,
        metavar="FILE",
        help="PEM: a certificate signed by it, common name USER or USER/DEVICE, is as good as a "
        "password",
    )
    add(
        "--tls-client-crl",
        type=Path,
        metavar="FILE",
        help="PEM: certificates that the authority has revoked; read again when it changes, and "
        "whoever is connected with one of them is cut",
    )
    add(
        "--mqtt-keep-alive",
        type=int,
        metavar="S",
        help="longest keep-alive an MQTT 5 client may ask for (default: any)",
    )
    add(
        "--mqtt-map",
        action="append",
        default=[],
        metavar="RULE",
        help="FILTER=TOPIC or FILTER=TOPIC:KEY: append what is published to FILTER to a topic of "
        "the log before it is acknowledged, e.g. 'plant/+/temperature=plant:{2}'; may be given "
        "several times, the first that matches counts",
    )
    add(
        "--mqtt-other-server",
        metavar="HOSTS",
        help="where MQTT 5 clients are sent for whom there is no room here, and all when this "
        "gateway stops: HOST or HOST:PORT, several with spaces between",
    )
    add(
        "--mqtt-moved-to",
        metavar="HOSTS",
        help="serve nobody here any more: tell MQTT 5 clients that the server has moved there",
    )
    add(
        "--mqtt-refusals",
        choices=("explained", "plain"),
        default="explained",
        help="how an MQTT 5 client learns that it may not subscribe: 0x87 not authorized, or 0x80 "
        "as in MQTT 3 (default: %(default)s)",
    )


def from_arguments(arguments: argparse.Namespace) -> MqttOptions:
    """Raises ConfigError for options that do not fit together."""
    if bool(arguments.tls_certificate) != bool(arguments.tls_key):
        raise ConfigError("--tls-certificate and --tls-key go together")
    if arguments.mqtts and not arguments.tls_certificate:
        raise ConfigError("--mqtts needs --tls-certificate and --tls-key")
    try:
        mapping = tuple(map(parse_rule, arguments.mqtt_map))
    except ValueError as error:
        raise ConfigError(f"--mqtt-map: {error}") from error
    if arguments.tls_client_crl and not arguments.tls_client_ca:
        raise ConfigError("--tls-client-crl needs --tls-client-ca")
    if arguments.mqtt_keep_alive is not None and not 0 < arguments.mqtt_keep_alive <= 0xFFFF:
        raise ConfigError("--mqtt-keep-alive must be 1 to 65535 s")
    return MqttOptions(
        tls=parse_endpoint(arguments.mqtts) if arguments.mqtts else None,
        certificate=arguments.tls_certificate,
        key=arguments.tls_key,
        client_ca=arguments.tls_client_ca,
        client_crl=arguments.tls_client_crl,
        mapping=mapping,
        settings=Settings(
            keep_alive_max_s=arguments.mqtt_keep_alive,
            refusals_explained=arguments.mqtt_refusals == "explained",
            other_server=arguments.mqtt_other_server,
            moved_to=arguments.mqtt_moved_to,
        ),
    )


def within_file_limit(settings: Settings) -> Settings:
    """As many connections as this process may hold files, less what it needs for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = max(soft - _OTHER_FILES, soft // 2)
    return replace(settings, connections_max=room)
