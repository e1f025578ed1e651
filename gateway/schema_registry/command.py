"""`waylog schema-registry`: Confluent's REST interface on a compacted topic."""

from __future__ import annotations

import argparse
import logging
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.schema_registry.records import SCHEMAS_TOPIC
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
from waylog.extras import install_command, is_installed
from waylog.network.served_hosts import ServedHosts
from waylog.observability.log_lines import configure_logging
from waylog.observability.metrics_token import ensure_metrics_token
from waylog.os_errors import describe_os_error

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

DEFAULT_LISTENERS: Final = "127.0.0.1:8081"

_EXAMPLES: Final = """examples:
  waylog schema-registry                                      for the platform on this machine
  waylog schema-registry --listeners 0.0.0.0:8081 --bootstrap-servers kafka-1:9092,kafka-2:9092 \\
      --data /var/lib/waylog --tls-certificate registry.pem --tls-key registry.key

Users of the platform read (user and token, Basic or Bearer), administrators write.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog schema-registry`."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "--listeners",
        default=DEFAULT_LISTENERS,
        metavar="H:P,...",
        help="addresses for HTTP, or for HTTPS with --tls-certificate (default: %(default)s)",
    )
    add(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="Kafka brokers, HOST:PORT,... (default: %(default)s)",
    )
    add(
        "--data",
        type=Path,
        default=DataDirectory.default().root,
        metavar="DIR",
        help="the platform's folder, which has its users (default: $WAYLOG_DATA or ./data)",
    )
    add("--users", type=Path, metavar="FILE", help="database of users (default: that of --data)")
    add("--open", action="store_true", help="everybody reads and writes: for tests only")
    add(
        "--topic",
        default=SCHEMAS_TOPIC,
        metavar="NAME",
        help="the compacted topic that keeps the schemas (default: %(default)s)",
    )
    add(
        "--replication-factor",
        type=int,
        default=-1,
        metavar="N",
        help="of the topic, when it is made (default: the brokers')",
    )
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name by which the registry may be asked; may be given several times",
    )
    add(
        "--metrics-token-file",
        type=Path,
        metavar="FILE",
        help="a token that reads /metrics and nothing else, for Prometheus; made if missing",
    )
    add("--tls-certificate", type=Path, metavar="FILE", help="PEM, with what leads to its root")
    add("--tls-key", type=Path, metavar="FILE", help="PEM")


def check(arguments: argparse.Namespace) -> None:
    """Check the options; see waylog.cli.CommandModule."""
    if not is_installed("avro"):
        raise CommandError(f"more packages are needed: {install_command('avro')}")
    check_bootstrap_servers(arguments.bootstrap_servers)
    check_name("--topic", arguments.topic)
    for each in arguments.listeners.split(","):
        parse_endpoint(each.strip())
    if arguments.replication_factor < 1 and arguments.replication_factor != -1:
        raise ConfigError(f"--replication-factor {arguments.replication_factor}: 1 is the least")
    if arguments.users is not None:
        check_users(arguments.users)
    try:
        ServedHosts(more=arguments.host)
    except ValueError as error:
        raise ConfigError(f"--host: {error}") from None
    _tls(arguments)


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    from gateway.mqtt.listening.tls import server_context

    certificate, key = arguments.tls_certificate, arguments.tls_key
    if (certificate is None) != (key is None):
        raise ConfigError("--tls-certificate and --tls-key go together")
    return None if certificate is None else server_context(certificate, key)


def _metrics_token(arguments: argparse.Namespace) -> str | None:
    path = arguments.metrics_token_file
    try:
        return None if path is None else ensure_metrics_token(path)
    except OSError as error:
        raise ConfigError(f"--metrics-token-file {describe_os_error(error)}") from None
    except ValueError as error:
        raise ConfigError(f"--metrics-token-file: {error}") from None


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    from confluent_kafka import KafkaException

    from gateway.process.lifecycle import run_service
    from gateway.schema_registry.process import RegistrySettings, serve
    from waylog.kafka.clients import LogUnreachable
    from waylog.kafka.errors import error_text
    from waylog.network.bound_listeners import bind
    from waylog.supervision.reserved_ports import is_held

    check(arguments)
    configure_logging()
    settings = RegistrySettings(
        bootstrap_servers=arguments.bootstrap_servers,
        listeners=[parse_endpoint(each.strip()) for each in arguments.listeners.split(",")],
        users=arguments.users or DataDirectory(arguments.data).users,
        open_mode=arguments.open,
        topic=arguments.topic,
        replication_factor=arguments.replication_factor,
        hosts=arguments.host,
        tls=_tls(arguments),
        metrics_token=_metrics_token(arguments),
    )
    if not settings.open_mode and not settings.users.is_file():
        logger.warning(
            "there is no database of users %s; a new one is made. Nobody can write before "
            "`waylog user add NAME --admin --users %s`",
            *(settings.users, settings.users),
        )
    try:
        listeners = [bind(each, shared=is_held(each)) for each in settings.listeners]
        return run_service(serve(settings, listeners))
    except LogUnreachable as error:
        raise CommandError(str(error)) from error
    except KafkaException as error:
        raise CommandError(f"topic {settings.topic}: {error_text(error)}") from error
    except sqlite3.Error as error:
        raise CommandError(f"{settings.users} is not a database of users: {error}") from error
    except OSError as error:
        raise CommandError(error.strerror or str(error)) from error
