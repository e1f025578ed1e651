"""`waylog gateway`: one process that speaks HTTP, WebSocket and MQTT with devices and viewers."""

from __future__ import annotations

import argparse
import logging
import math
import os
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.alerts.smtp_settings import SmtpSettings, smtp_settings
from gateway.limits.addresses import TrustedProxies
from gateway.limits.bounds import IMPORT_BYTES_MAX, HttpLimits
from gateway.limits.error_bytes import ERROR_BYTES_PER_MINUTE
from gateway.mqtt.listening import options as mqtt_options
from gateway.observability.metrics_access import AUDIENCES, MetricsAccess
from gateway.users.admission import DEVICES_PER_USER
from gateway.users.database_place import check_users
from gateway.web.tile_server import Name, TileServer, tile_server
from waylog.cli import CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    DEFAULT_HTTP,
    DEFAULT_MQTT,
    ConfigError,
    DataDirectory,
    check_bootstrap_servers,
    check_name,
    http_url,
    load_properties,
    parse_endpoint,
)
from waylog.folders import check_folder
from waylog.history.storage_url import check_storage_url
from waylog.network.outbound.reachable_networks import ReachableNetworks
from waylog.network.served_hosts import ServedHosts
from waylog.network.tls.certificate_dates import read_dates
from waylog.observability.log_lines import configure_logging
from waylog.observability.metrics_token import ensure_metrics_token
from waylog.os_errors import describe_os_error
from waylog.serialization.by_name import URL
from waylog.supervision.listening_check import ListeningCheck

if TYPE_CHECKING:
    from gateway.process.gateway_process import GatewaySettings

logger = logging.getLogger(__name__)

#: sockaddr_un.sun_path of Linux, without the byte that ends it (unix(7)).
_SOCKET_PATH_BYTES_MAX: Final = 107


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog gateway`."""
    data = DataDirectory.default()
    parser.epilog = (
        "examples:\n"
        "  waylog gateway --http 127.0.0.1:8080 --mqtt 127.0.0.1:1883\n"
        "  waylog gateway --bootstrap-servers kafka-1:9092,kafka-2:9092 --http 0.0.0.0:8080 \\\n"
        "      --users /var/lib/waylog/users.db\n\n"
        "Sending and reading need credentials, unless --open, from this machine too. A link that\n"
        "`waylog link` prints signs a browser in. The topics must exist, or the gateway waits."
    )
    add = parser.add_argument
    add(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="Kafka brokers, HOST:PORT,... (default: %(default)s)",
    )
    add("--http", default=DEFAULT_HTTP, metavar="H:P", help="HTTP address (default: %(default)s)")
    add(
        "--mqtt",
        default=DEFAULT_MQTT,
        metavar="H:P",
        help="MQTT address, or `none` (default: %(default)s); the path /mqtt of --http takes MQTT "
        "over WebSocket",
    )
    mqtt_options.add_arguments(parser)
    add(
        "--relay",
        type=Path,
        metavar="SOCKET",
        help="let workers that only speak MQTT (--edge) get their addresses from this gateway",
    )
    add(
        "--edge",
        type=Path,
        metavar="SOCKET",
        help="only speak MQTT, without views and HTTP, beside the gateway whose --relay this is",
    )
    add(
        "--users",
        type=Path,
        metavar="FILE",
        help=f"database of users (default: users.db in --data, {data.users})",
    )
    add("--open", action="store_true", help="accept every user: demonstrations and load tests only")
    add(
        "--devices-per-user",
        type=int,
        default=DEVICES_PER_USER,
        metavar="N",
        help="different devices that a user may send for, unless `waylog user limit` says "
        "otherwise; administrators as many as they like (default: %(default)s)",
    )
    add(
        "--error-bytes-per-user",
        type=int,
        default=ERROR_BYTES_PER_MINUTE,
        metavar="N",
        help="bytes a minute that a user may have kept in topic `error`, of messages that can "
        "never be accepted, and sixteen times as many at once; of what is beyond that only the "
        "beginning is kept (default: %(default)s)",
    )
    add(
        "--viewers-per-user",
        type=int,
        default=HttpLimits.viewers_per_user_max,
        metavar="N",
        help="live streams (SSE and WebSocket) that a user may have open (default: %(default)s)",
    )
    add(
        "--viewers-per-address",
        type=int,
        default=HttpLimits.viewers_per_address_max,
        metavar="N",
        help="the same from one address that is not loopback (default: %(default)s)",
    )
    add(
        "--share-days-max",
        type=int,
        default=HttpLimits.share_days_max,
        metavar="DAYS",
        help="how long the link of a share may work (default: %(default)s)",
    )
    add(
        "--import-bytes-max",
        type=int,
        default=IMPORT_BYTES_MAX,
        metavar="N",
        help="bytes of the files that a user may have uploaded and not yet imported, beside the "
        "database of users; 0: no imports (default: %(default)s)",
    )
    add("--places", metavar="URL", help="folder of favourite places, as `waylog places run` writes")
    add("--history", metavar="URL", help="the history, for tracks of more than memory holds")
    add("--geo-url", metavar="URL", help="geocoder behind /reverse and /status")
    add(
        "--schema-registry-config",
        type=Path,
        metavar="FILE",
        help="properties of the schema registry by which administrators are shown values: "
        "schema.registry.url, basic.auth.user.info, ssl.ca.location, ...",
    )
    add("--data", type=Path, default=data.root, metavar="DIR", help="default: %(default)s")
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name (NAME or NAME:PORT) by which browsers ask for this gateway, e.g. that of a "
        "reverse proxy in front of it; may be given several times. Always served: localhost, the "
        "machine's name, and the address of --http (any address where that is 0.0.0.0)",
    )
    add(
        "--metrics-access",
        choices=AUDIENCES,
        default="admin",
        help="who reads /metrics and /v1/pipeline: administrators, every user, or everybody "
        "(default: %(default)s)",
    )
    add(
        "--metrics-token-file",
        type=Path,
        metavar="FILE",
        help="a token that reads /metrics and nothing else, for Prometheus; made if missing",
    )
    add(
        "--demo-token",
        type=Path,
        metavar="FILE",
        help="the file with the demo user's token, which the page's guide names",
    )
    add(
        "--push-contact",
        metavar="URI",
        help="mailto: or https: address of the operator; switches Web Push on, which sends to "
        "push services in the internet",
    )
    add(
        "--map-url",
        metavar="URL",
        help="tiles of another server that the page offers as a base map, which browsers then ask: "
        "https://tiles.example.org/{z}/{x}/{y}.png (or .pbf in the schema Shortbread), or a "
        "TileJSON (default: none)",
    )
    add("--map-attribution", metavar="TEXT", help="whose map it is (default: its server's name)")
    add("--satellite-url", metavar="URL", help="the same, of pictures (default: none)")
    add("--satellite-attribution", metavar="TEXT", help="whose pictures these are")
    add(
        "--alert-networks",
        default="",
        metavar="LIST",
        help="networks beside the internet, with commas between, whose servers users may have told "
        "of events (webhooks): 192.168.1.0/24 (default: none)",
    )
    add(
        "--smtp-url",
        metavar="URL",
        help="the server that takes e-mail in, by which users may be told of events: "
        "smtps://[USER@]HOST[:465] (TLS), smtp://[USER@]HOST[:587] (STARTTLS, which only a server "
        "on this machine need not offer) (default: no e-mail)",
    )
    add("--smtp-from", metavar="ADDRESS", help="the address that e-mail comes from")
    add(
        "--smtp-password-file",
        type=Path,
        metavar="FILE",
        help="the file with the password of USER in --smtp-url",
    )
    add(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="NETWORK",
        help="address or network of a reverse proxy whose X-Forwarded-For is believed; may be "
        "given several times",
    )
    add(
        "--proxy-protocol",
        action="store_true",
        help="HTTP connections of trusted proxies begin with a PROXY header (version 1 or 2), "
        "those for MQTT, with TLS or without, may",
    )
    add(
        "--workers-share-port",
        action="store_true",
        help="let several gateways listen on the same addresses (SO_REUSEPORT)",
    )
    add("--client-id", metavar="NAME", help="name towards the log (default: gateway-PID)")
    add(
        "--resolver-group",
        default="resolver",
        metavar="NAME",
        help="consumer group whose lag the page shows (default: %(default)s)",
    )
    add(
        "--dead-letters",
        action="append",
        default=[],
        metavar="TOPIC",
        help="topic of a connector's dead letters, which receipts of devices tell; may be given "
        "several times",
    )
    add(
        "--view-tail",
        type=int,
        default=50_000,
        metavar="N",
        help="fixes of each partition that are read at the start for tracks, whatever has been "
        "kept (default: %(default)s)",
    )
    add(
        "--views",
        type=Path,
        metavar="DIR",
        help="last positions and ids of fixes, so that they outlive the process (default: views in "
        "--data)",
    )
    add(
        "--append-timeout",
        type=float,
        default=HttpLimits.append_timeout_s,
        metavar="S",
        help="how long a request waits for the log before it is answered with 503 "
        "(default: %(default)s)",
    )


def check(arguments: argparse.Namespace) -> None:
    """Check the options, see waylog.cli.CommandModule."""
    check_bootstrap_servers(arguments.bootstrap_servers)
    http = parse_endpoint(arguments.http)
    mqtt = None if arguments.mqtt == "none" else parse_endpoint(arguments.mqtt)
    if arguments.edge is not None and (mqtt is None or arguments.relay is not None):
        raise ConfigError("--edge needs --mqtt, and goes without --relay")
    if arguments.view_tail < 0:
        raise ConfigError("--view-tail must be 0 or more")
    if not 0 < arguments.append_timeout < math.inf:
        raise ConfigError("--append-timeout must be more than 0 s")
    for bound in (
        *("devices_per_user", "error_bytes_per_user"),
        *("viewers_per_user", "viewers_per_address", "share_days_max"),
    ):
        if getattr(arguments, bound) < 1:
            raise ConfigError(f"--{bound.replace('_', '-')} must be 1 or more")
    if arguments.import_bytes_max < 0:
        raise ConfigError("--import-bytes-max must be 0 or more")
    if arguments.proxy_protocol and not arguments.trusted_proxy:
        raise ConfigError("--proxy-protocol needs --trusted-proxy")
    try:
        TrustedProxies(arguments.trusted_proxy)
    except ValueError as error:
        raise ConfigError(f"--trusted-proxy: {error}") from error
    try:
        ServedHosts(http.host, arguments.host)
    except ValueError as error:
        raise ConfigError(f"--host: {error}") from error
    if arguments.geo_url is not None:
        try:
            http_url(arguments.geo_url)
        except ConfigError as error:
            raise ConfigError(f"--geo-url {error}") from None
    _schema_registry(arguments)
    check_name("--resolver-group", arguments.resolver_group)
    for option, url in (("--places", arguments.places), ("--history", arguments.history)):
        if url is not None:
            check_storage_url(option, url)
    for option, path in (("--relay", arguments.relay), ("--edge", arguments.edge)):
        if path is not None:
            _check_socket(option, path)
    _tile_servers(arguments)
    contact = arguments.push_contact
    if contact is not None and not contact.startswith(("mailto:", "https:")):
        raise ConfigError("--push-contact is a mailto: or https: address")
    mqtt_options.check(mqtt_options.from_arguments(arguments))


def _check_socket(option: str, path: Path) -> None:
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise ConfigError(f"{option} {path}: longer than {_SOCKET_PATH_BYTES_MAX} bytes")
    if not path.parent.is_dir():
        raise ConfigError(f"{option} {path}: there is no folder {path.parent}")
    if path.exists() and not path.is_socket():
        raise ConfigError(f"{option} {path}: it is a file, not a socket")


def _check_machine(arguments: argparse.Namespace, settings: GatewaySettings) -> None:
    """Check what this process needs of the machine; raises ConfigError.

    `waylog up` does not call it: it makes the users and holds the ports itself.
    """
    check_folder(settings.users.parent, "--users" if arguments.users else "--data")
    if arguments.users is not None:
        check_users(arguments.users)
    if settings.views is not None:
        check_folder(settings.views, "--views")
    listening = ListeningCheck()
    if arguments.edge is None:
        listening.check("--http", settings.http, shared=settings.share_ports)
    if settings.mqtt is not None:
        listening.check("--mqtt", settings.mqtt, shared=settings.share_ports)
    if settings.mqtt_options.tls is not None:
        listening.check("--mqtts", settings.mqtt_options.tls, shared=settings.share_ports)


def _say_what_is_missing(arguments: argparse.Namespace) -> None:
    """Log what the options name and what may come later, or may be meant so."""
    for option, url in (("--places", arguments.places), ("--history", arguments.history)):
        if url is not None and "://" not in url and not Path(url).exists():
            logger.warning(
                "%s %s: there is no such folder yet; it is read when it is there", *(option, url)
            )
    if arguments.edge is not None and not arguments.edge.exists():
        logger.warning(
            "--edge %s: there is no such socket yet; waiting for the gateway whose --relay it is",
            arguments.edge,
        )
    if arguments.mqtts and arguments.tls_certificate:
        dates = read_dates(arguments.tls_certificate)
        warning = None if dates is None else dates.warning(datetime.now(UTC))
        if warning is not None:
            logger.warning("--tls-certificate %s: %s", arguments.tls_certificate, warning)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped. Return 0, or 1 when the log can never be appended to again."""
    from gateway.process.gateway_process import GatewaySettings, serve
    from gateway.process.lifecycle import run_service
    from gateway.process.mqtt_worker_process import serve_mqtt_worker

    check(arguments)
    settings = GatewaySettings(
        push_contact=arguments.push_contact,
        mqtt_options=mqtt_options.from_arguments(arguments),
        relay=arguments.relay,
        trusted_proxies=tuple(arguments.trusted_proxy),
        proxy_protocol=arguments.proxy_protocol,
        bootstrap_servers=arguments.bootstrap_servers,
        http=parse_endpoint(arguments.http),
        mqtt=None if arguments.mqtt == "none" else parse_endpoint(arguments.mqtt),
        users=arguments.users or DataDirectory(arguments.data).users,
        open_mode=arguments.open,
        devices_per_user=arguments.devices_per_user,
        error_bytes_per_user=arguments.error_bytes_per_user,
        viewers_per_user=arguments.viewers_per_user,
        viewers_per_address=arguments.viewers_per_address,
        share_days_max=arguments.share_days_max,
        import_bytes_max=arguments.import_bytes_max,
        places=arguments.places,
        history=arguments.history,
        geo_url=None if arguments.geo_url is None else http_url(arguments.geo_url),
        schema_registry=_schema_registry(arguments),
        hosts=tuple(arguments.host),
        metrics_access=_metrics_access(arguments),
        demo_token=arguments.demo_token,
        share_ports=arguments.workers_share_port,
        client_id=arguments.client_id or f"gateway-{os.getpid()}",
        resolver_group=arguments.resolver_group,
        dead_letters=tuple(dict.fromkeys(arguments.dead_letters)),
        view_tail_records=arguments.view_tail,
        views=arguments.views or DataDirectory(arguments.data).views,
        append_timeout_s=arguments.append_timeout,
        alert_networks=_networks(arguments.alert_networks),
        smtp=_smtp(arguments),
        tile_servers=_tile_servers(arguments),
    )
    _check_machine(arguments, settings)
    configure_logging()
    _say_what_is_missing(arguments)
    if not settings.open_mode and not settings.users.is_file():
        logger.warning(
            "there is no database of users %s; a new one is made. Nobody can sign in before "
            "`waylog user add NAME --users %s`",
            *(settings.users, settings.users),
        )
    try:
        if arguments.edge is not None:
            return run_service(serve_mqtt_worker(settings, arguments.edge))
        return run_service(serve(settings))
    except sqlite3.Error as error:
        raise CommandError(f"{settings.users} is not a database of users: {error}") from error
    except OSError as error:
        raise CommandError(describe_os_error(error)) from error


def _tile_servers(arguments: argparse.Namespace) -> tuple[TileServer, ...]:
    """Return the base maps that the options name; raises ConfigError."""
    found = []
    named: tuple[tuple[Name, str | None, str | None], ...] = (
        ("map", arguments.map_url, arguments.map_attribution),
        ("satellite", arguments.satellite_url, arguments.satellite_attribution),
    )
    for name, url, attribution in named:
        if url is None:
            if attribution is not None:
                raise ConfigError(f"--{name}-attribution needs --{name}-url")
            continue
        try:
            found.append(tile_server(name, url, attribution))
        except ValueError as error:
            raise ConfigError(f"--{name}-url: {error}") from None
    return tuple(found)


def _schema_registry(arguments: argparse.Namespace) -> Mapping[str, str] | None:
    path = arguments.schema_registry_config
    if path is None:
        return None
    properties = load_properties(path)
    if URL not in properties:
        raise ConfigError(f"--schema-registry-config {path}: {URL} is missing")
    return properties


def _metrics_access(arguments: argparse.Namespace) -> MetricsAccess:
    path = arguments.metrics_token_file
    if path is None:
        return MetricsAccess(arguments.metrics_access)
    try:
        return MetricsAccess(arguments.metrics_access, ensure_metrics_token(path))
    except OSError as error:
        raise ConfigError(f"--metrics-token-file {describe_os_error(error)}") from None
    except ValueError as error:
        raise ConfigError(f"--metrics-token-file: {error}") from None


def _smtp(arguments: argparse.Namespace) -> SmtpSettings | None:
    """Return where e-mail is handed in; raises ConfigError."""
    url, sender, password = (
        arguments.smtp_url,
        arguments.smtp_from,
        arguments.smtp_password_file,
    )
    if url is None:
        if sender is not None or password is not None:
            raise ConfigError("--smtp-from and --smtp-password-file need --smtp-url")
        return None
    return smtp_settings(url, sender, password)


def _networks(text: str) -> tuple[str, ...]:
    """Return the networks of a list; raises ConfigError."""
    networks = tuple(each.strip() for each in text.split(",") if each.strip())
    ReachableNetworks(networks)
    return networks
