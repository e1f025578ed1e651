"""The command-line options of `waylog gateway` for the MQTT listener."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway.mqtt.journal.seats import Seat
from gateway.mqtt.publishing.mapping import TopicRule, parse_rule
from gateway.mqtt.settings import Settings
from waylog.config import ConfigError, Endpoint, parse_endpoint
from waylog.process.file_limit import room_for_connections

_MB: Final = 1024 * 1024
#: Each memory pool may take one eighth of the machine's memory.
_PART_OF_MEMORY: Final = 8
_DEFAULTS: Final = Settings()
#: Shares of one user in common resources (gateway.mqtt.settings): option, help text, default.
_SHARES: Final = (
    ("connections", "connections of one user", _DEFAULTS.connections_per_user_max),
    (
        "sessions",
        "sessions of one user's clients that are away; the one away longest goes",
        _DEFAULTS.offline_sessions_per_user_max,
    ),
    (
        "queued",
        "MB of messages that wait for one user's clients",
        _DEFAULTS.held_bytes_per_user_max // _MB,
    ),
    (
        "retained",
        "retained messages of one user; the one not renewed longest goes",
        _DEFAULTS.retained_messages_per_user_max,
    ),
)

#: What is of no use without a listener.
_OF_THE_LISTENER: Final = (
    *("--mqtts", "--mqtt-keep-alive", "--mqtt-map", "--mqtt-worker"),
    *("--mqtt-other-server", "--mqtt-moved-to"),
)


@dataclass(frozen=True)
class MqttOptions:
    """The listener's options, as parsed from the command line."""

    tls: Endpoint | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    client_crl: Path | None = None
    settings: Settings = field(default_factory=Settings)
    mapping: tuple[TopicRule, ...] = ()
    #: The seat of this process among several workers. None with several workers: the sessions in
    #: the log are not resumed before their clients connect.
    seat: Seat | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the listener's options, except --mqtt itself."""
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
    for name, documentation, default in _SHARES:
        add(
            f"--mqtt-{name}-per-user",
            type=int,
            metavar="MB" if "MB" in documentation else "N",
            default=default,
            help=f"{documentation} (default: %(default)s)",
        )
    add(
        "--mqtt-workers",
        type=int,
        default=1,
        metavar="N",
        help="how many gateways share the port: each has its part of what a user may have",
    )
    add(
        "--mqtt-worker",
        type=int,
        metavar="N",
        help="which of them this one is, from 1 on: it keeps the sessions of the one before "
        "it, and what is published for their clients until they come back",
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
    """Build the options; raises ConfigError if they contradict each other."""
    if bool(arguments.tls_certificate) != bool(arguments.tls_key):
        raise ConfigError("--tls-certificate and --tls-key go together")
    if arguments.mqtts and not arguments.tls_certificate:
        raise ConfigError("--mqtts needs --tls-certificate and --tls-key")
    _check_needed(arguments)
    try:
        mapping = tuple(map(parse_rule, arguments.mqtt_map))
    except ValueError as error:
        raise ConfigError(f"--mqtt-map: {error}") from error
    if arguments.mqtt_keep_alive is not None and not 0 < arguments.mqtt_keep_alive <= 0xFFFF:
        raise ConfigError("--mqtt-keep-alive must be 1 to 65535 s")
    for name, _, _ in _SHARES:
        if getattr(arguments, f"mqtt_{name}_per_user") < 1:
            raise ConfigError(f"--mqtt-{name}-per-user must be 1 or more")
    if arguments.mqtt_workers < 1:
        raise ConfigError("--mqtt-workers must be 1 or more")
    number = arguments.mqtt_worker
    if number is not None and not 1 <= number <= arguments.mqtt_workers:
        raise ConfigError("--mqtt-worker must be 1 to the number of --mqtt-workers")
    return MqttOptions(
        tls=parse_endpoint(arguments.mqtts) if arguments.mqtts else None,
        certificate=arguments.tls_certificate,
        key=arguments.tls_key,
        client_ca=arguments.tls_client_ca,
        client_crl=arguments.tls_client_crl,
        mapping=mapping,
        seat=None if number is None else Seat(number, arguments.mqtt_workers),
        settings=Settings(
            users_share=not arguments.open,
            workers=arguments.mqtt_workers,
            connections_per_user_max=arguments.mqtt_connections_per_user,
            offline_sessions_per_user_max=arguments.mqtt_sessions_per_user,
            held_bytes_per_user_max=arguments.mqtt_queued_per_user * _MB,
            retained_messages_per_user_max=arguments.mqtt_retained_per_user,
            keep_alive_max_s=arguments.mqtt_keep_alive,
            refusals_explained=arguments.mqtt_refusals == "explained",
            other_server=arguments.mqtt_other_server,
            moved_to=arguments.mqtt_moved_to,
        ),
    )


def _check_needed(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for an option that would be ignored without another one."""
    if arguments.tls_client_crl and not arguments.tls_client_ca:
        raise ConfigError("--tls-client-crl needs --tls-client-ca")
    if arguments.tls_client_ca and not arguments.tls_certificate:
        raise ConfigError("--tls-client-ca needs --mqtts, --tls-certificate and --tls-key")
    if arguments.mqtt == "none":
        for option in _OF_THE_LISTENER:
            if getattr(arguments, option[2:].replace("-", "_")):
                raise ConfigError(f"{option} needs --mqtt, which is none")
    if arguments.mqtt_other_server is not None and arguments.mqtt_moved_to is not None:
        raise ConfigError(
            "--mqtt-moved-to sends everybody away: it goes without --mqtt-other-server"
        )
    for option in ("--mqtt-other-server", "--mqtt-moved-to"):
        hosts = getattr(arguments, option[2:].replace("-", "_"))
        if hosts is not None:
            _check_hosts(option, hosts)


def _check_hosts(option: str, hosts: str) -> None:
    """Check a Server Reference (MQTT 5, 4.11): HOST or HOST:PORT, several with spaces between."""
    words = hosts.split()
    try:
        named = [word for word in words if ":" in word and not word.endswith("]")]
        if words and all(not word.startswith(":") and parse_endpoint(word).port for word in named):
            return
    except ConfigError:
        pass
    raise ConfigError(
        f"{option} {hosts!r}: HOST or HOST:PORT is expected, several with spaces between"
    )


def check(options: MqttOptions) -> None:
    """Check that the TLS files can be used; raises ConfigError."""
    from gateway.mqtt.listening.tls import server_context

    if options.certificate is not None and options.key is not None:
        server_context(options.certificate, options.key, options.client_ca, options.client_crl)
        if options.tls is None:
            raise ConfigError("--tls-certificate and --tls-key need --mqtts, the address for them")


def within_machine(settings: Settings) -> Settings:
    """Fit limits to this machine: connections to its open-file limit, memory to its RAM.

    With several workers each gets its part of the memory and of each user's share, as a user's
    clients may connect to any of them. Limits on what every worker holds in full, such as retained
    messages, are not divided.
    """
    room = room_for_connections()
    if settings.other_server is not None:
        room -= min(settings.connections_redirected_max, room // 2)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    workers = settings.workers

    def part(value: int) -> int:
        return max(1, -(-value // workers))

    return replace(
        settings,
        connections_max=room,
        held_bytes_max=part(min(settings.held_bytes_max, memory // _PART_OF_MEMORY)),
        subscription_bytes_max=part(
            min(settings.subscription_bytes_max, memory // _PART_OF_MEMORY)
        ),
        incomplete_bytes_max=part(settings.incomplete_bytes_max),
        incomplete_bytes_per_user_max=part(settings.incomplete_bytes_per_user_max),
        unread_bytes_max=part(settings.unread_bytes_max),
        unread_bytes_per_user_max=part(settings.unread_bytes_per_user_max),
        connections_per_user_max=part(settings.connections_per_user_max),
        offline_sessions_per_user_max=part(settings.offline_sessions_per_user_max),
        held_bytes_per_user_max=part(settings.held_bytes_per_user_max),
        subscription_bytes_per_user_max=part(settings.subscription_bytes_per_user_max),
        publish_bytes_in_flight_per_user_max=part(settings.publish_bytes_in_flight_per_user_max),
    )
