"""`waylog bridge`: takes fixes from an existing MQTT cluster, and publishes addresses to it."""

from __future__ import annotations

import argparse
import socket
import ssl
from pathlib import Path
from urllib.parse import quote

from gateway.mqtt.packets.topics import filter_is_valid
from gateway.mqtt.settings import Settings
from gateway.users.database_place import check_users
from waylog.cli import CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    ConfigError,
    DataDirectory,
    check_bootstrap_servers,
    check_name,
    parse_endpoint,
)
from waylog.folders import check_folder
from waylog.network.tls.pem_files import load_authority, load_certificate
from waylog.observability.log_lines import configure_logging

DEFAULT_FILTERS = ("owntracks/+/+", "owntracks/+/+/event", "devices/+/+/position")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog bridge`."""
    parser.epilog = (
        "examples:\n"
        "  waylog bridge --mqtt mosquitto.example:1883 --user waylog --password-file password\n"
        "  waylog bridge --mqtt emqx.example:8883 --tls --filter 'owntracks/+/+'\n\n"
        "A message is acknowledged to the cluster when the log has it. Several bridges with\n"
        "client ids of their own share the work. The cluster's ACL must let the bridge read the\n"
        "filters, and write devices/+/+/address and owntracks/+/+/info."
    )
    add = parser.add_argument
    add("--mqtt", required=True, metavar="H:P", help="address of the cluster")
    add(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="Kafka brokers, HOST:PORT,... (default: %(default)s)",
    )
    add(
        "--filter",
        action="append",
        metavar="FILTER",
        help=f"topics to take, several times (default: {', '.join(DEFAULT_FILTERS)})",
    )
    add(
        "--share",
        default="waylog",
        metavar="NAME",
        help="name of the shared subscription, `none` for an ordinary one (default: %(default)s)",
    )
    add(
        "--client-id",
        default=f"waylog-bridge-{socket.gethostname()}",
        metavar="NAME",
        help="the cluster keeps a session under it (default: %(default)s)",
    )
    add("--version", choices=("5", "3.1.1"), default="5", help="of MQTT (default: %(default)s)")
    add("--user", metavar="NAME", help="user name in the cluster")
    add("--password-file", type=Path, metavar="FILE", help="its first line is the password")
    add(
        "--users",
        type=Path,
        metavar="FILE",
        help="database of users whose quotas, bounds of devices and look-only users hold for what "
        "the cluster delivers, too (default: the cluster alone says who may send)",
    )
    add(
        "--data",
        type=Path,
        default=DataDirectory.default().root,
        metavar="DIR",
        help="for the ids of the log's fixes, by which repeated ones are stored once (default: "
        "%(default)s)",
    )
    add("--tls", action="store_true", help="connect with TLS")
    add("--tls-ca", type=Path, metavar="FILE", help="PEM, if the cluster's root is not public")
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM, to show to the cluster")
    add("--tls-key", type=Path, metavar="FILE", help="PEM")
    add(
        "--in-flight",
        type=int,
        default=1000,
        metavar="N",
        help="messages not yet acknowledged (default: %(default)s)",
    )
    add(
        "--addresses",
        choices=("seen", "all", "none"),
        default="seen",
        help="publish the addresses of devices whose fixes came by this bridge, of all, or of none "
        "(default: %(default)s)",
    )


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if not arguments.tls:
        if arguments.tls_ca or arguments.tls_certificate or arguments.tls_key:
            raise ConfigError("--tls-ca, --tls-certificate and --tls-key need --tls")
        return None
    if arguments.tls_key and not arguments.tls_certificate:
        raise ConfigError("--tls-key needs --tls-certificate")
    if arguments.tls_ca is not None:
        load_authority(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), arguments.tls_ca, "--tls-ca")
    context = ssl.create_default_context(cafile=arguments.tls_ca)
    if arguments.tls_certificate:
        load_certificate(
            context,
            arguments.tls_certificate,
            arguments.tls_key,
            option="--tls-certificate",
            key_option="--tls-key",
        )
    return context


def _read(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path}: it is not text") from None


def _file_name(client_id: str) -> str:
    return quote(client_id, safe="").replace(".", "%2E")


def check(arguments: argparse.Namespace) -> None:
    """Check the options, see waylog.cli.CommandModule."""
    check_bootstrap_servers(arguments.bootstrap_servers)
    if not 0 < arguments.in_flight <= 0xFFFF:
        raise ConfigError("--in-flight must be 1 to 65535")
    if arguments.users is not None:
        check_users(arguments.users)
        if not arguments.users.exists():
            raise ConfigError(f"--users: there is no {arguments.users}")
    if not parse_endpoint(arguments.mqtt).port:
        raise ConfigError(f"--mqtt {arguments.mqtt}: the port of the cluster is expected")
    for topic_filter in arguments.filter or ():
        if not filter_is_valid(topic_filter, Settings().topic_levels_max):
            raise ConfigError(f"--filter {topic_filter!r} is not a topic filter")
    if not arguments.share or any(each in arguments.share for each in "/+#"):
        raise ConfigError(f"--share {arguments.share!r}: a name without /, + and # is expected")
    check_name("--client-id", arguments.client_id)
    if arguments.password_file is not None and arguments.user is None:
        raise ConfigError("--password-file needs --user")
    _tls(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped; return 0, or 1 if the log can never be appended to again."""
    from gateway.bridge.cluster import ClusterSettings
    from gateway.bridge.process import BridgeSettings, serve
    from gateway.process.lifecycle import run_service

    check(arguments)
    check_folder(arguments.data, "--data")
    try:
        password = None
        if arguments.password_file is not None:
            password = _read(arguments.password_file, "--password-file").partition("\n")[0]
        settings = BridgeSettings(
            bootstrap_servers=arguments.bootstrap_servers,
            addresses=arguments.addresses,
            users=arguments.users,
            # One folder for each client, as bridges on one machine may serve different logs.
            keys=DataDirectory(arguments.data).bridge / _file_name(arguments.client_id),
            cluster=ClusterSettings(
                endpoint=parse_endpoint(arguments.mqtt),
                client_id=arguments.client_id,
                filters=arguments.filter or DEFAULT_FILTERS,
                share=None if arguments.share == "none" else arguments.share,
                version=5 if arguments.version == "5" else 4,
                user=arguments.user,
                password=password,
                tls=_tls(arguments),
                in_flight_max=arguments.in_flight,
            ),
        )
        configure_logging()
        return run_service(serve(settings))
    except OSError as error:
        raise CommandError(str(error)) from error
