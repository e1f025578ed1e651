"""`waylog broker`: one broker process."""

from __future__ import annotations

import argparse
import getpass
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker_core.configuration.config import BrokerConfig
from broker_core.errors import BrokerError, InvalidConfig
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import ConfigError, load_properties
from waylog.folders import check_folder
from waylog.observability.log_lines import configure_logging
from waylog.os_errors import describe_os_error
from waylog.process.file_limit import raise_file_limit
from waylog.process.garbage_collection import tune_garbage_collector
from waylog.process.serving import serving
from waylog.process.stop_limit import FAILED_STOP_MAX_S
from waylog.process.storage_trouble import describe, is_disk_full
from waylog.supervision.listening_check import ListeningCheck

if TYPE_CHECKING:
    from broker_core.server.runtime import Broker

logger = logging.getLogger(__name__)

#: A callback that fails ends the process where it begins in one of these...
CALLBACKS_OF: Final = ("broker_core.", "waylog.")
#: ...but for these: an exception in a request's own timer concerns that request alone.
OF_ONE_CLIENT: Final = (
    "broker_core.server.handlers.",
    "broker_core.server.network.connection",
    "waylog.network.tls.handshakes",
)

_EPILOG = """\
The file has Apache Kafka's property names; what it does not set has Kafka's default.

  node.id=0
  listeners=PLAINTEXT://127.0.0.1:9092
  log.dirs=data/broker/0/logs
  log.retention.hours=168
  log.flush.interval.messages=1     acknowledge after fdatasync (group commit)

examples:
  waylog broker --config server.properties
  waylog broker --config server.properties --override listeners=PLAINTEXT://127.0.0.1:0
  waylog broker --config server.properties --add-scram SCRAM-SHA-512=admin < password.txt
                                    store a first user while the broker is stopped, then end
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="property file of the broker"
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property that replaces the file's; may be given several times",
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=USER",
        help="store a user with the password on standard input, then end; the broker must be "
        "stopped (while it runs: kafka-configs, or any admin client). In a cluster of several "
        "brokers: on all controllers, before they are started for the first time",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    import uvloop

    configure_logging()
    properties = load_properties(arguments.config)
    for override in arguments.override:
        name, separator, value = override.partition("=")
        if not separator:
            raise CommandError(f"--override {override}: NAME=VALUE is expected")
        properties[name.strip()] = value.strip()
    try:
        config = BrokerConfig.from_properties(properties)
    except ConfigError as error:
        raise _of_file(arguments, error) from None
    for warning in config.warnings:
        logger.warning("%s: properties %s", arguments.config, warning)
    for contradiction in config.contradictions():
        logger.warning("%s: %s", arguments.config, contradiction)
    try:
        check_folder(config.log_dir, "log.dirs")
    except ConfigError as error:
        raise _of_file(arguments, error) from None
    if arguments.add_scram:
        return _add_users(config, arguments.add_scram)
    try:
        _check_listening(config)
        return uvloop.run(_serve(config))
    except ConfigError as error:
        raise _of_file(arguments, error) from None


def _of_file(arguments: argparse.Namespace, error: ConfigError) -> ConfigError:
    """Name the property file in an error about a property."""
    more = " with --override" if arguments.override else ""
    return ConfigError(f"{arguments.config}{more}: {error}")


def _check_listening(config: BrokerConfig) -> None:
    """Raise ConfigError if an address cannot be bound, before the logs are opened."""
    listening = ListeningCheck()
    controller = () if config.controller_listener is None else (config.controller_listener,)
    for each in (*config.listeners, *controller):
        listening.check(f"listeners ({each.name})", each.endpoint)
    if config.metrics_listener is not None:
        listening.check("metrics.listener", config.metrics_listener)


def _add_users(config: BrokerConfig, words: list[str]) -> int:
    """Store users for the first start of a broker whose listeners admit only known users."""
    from broker_core.environment import Environment
    from broker_core.security.scram import BY_NAME, credential_from_password
    from broker_core.server.settings.settings_store import load_users, save_users

    environment = Environment.real()
    environment.disk.make_directory(config.log_dir)
    lock = environment.disk.lock(config.log_dir)
    try:
        users = load_users(config.log_dir, environment)
        for word in words:
            mechanism, separator, user = word.partition("=")
            if mechanism not in BY_NAME or not separator or not user:
                raise CommandError(
                    f"--add-scram {word}: MECHANISM=USER is expected, with {' or '.join(BY_NAME)}"
                )
            password = _read_password(user)
            users.put(
                user, BY_NAME[mechanism], credential_from_password(BY_NAME[mechanism], password)
            )
        save_users(config.log_dir, environment, users)
    finally:
        lock.release()
    print(f"stored {', '.join(words)} in {config.log_dir}")
    return EXIT_DONE


def _read_password(user: str) -> str:
    """Read a password from the terminal without echo, or else a line of standard input."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {user}: ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError(f"the password of {user} is empty")
    return password


async def _serve(config: BrokerConfig) -> int:
    from broker_core.server.runtime import start_broker

    raise_file_limit()
    broker: Broker | None = None
    async with serving(callbacks_of=CALLBACKS_OF, except_of=OF_ONE_CLIENT) as process:
        try:
            # In a cluster it may wait for other nodes; a signal may end it meanwhile.
            broker = await process.start(start_broker(config))
        except InvalidConfig as error:
            raise ConfigError(str(error)) from error
        except (OSError, BrokerError) as error:
            cause = error.__cause__ or error
            reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
            if is_disk_full(cause):
                reason = describe(config.log_dir, cause)
            raise CommandError(f"the broker cannot start: {reason}") from error
        # An orderly stop may take long, to make everything durable.
        process.closing.push_async_callback(broker.close)
        logger.info(
            "broker %d of cluster %s serves %s, logs in %s",
            broker.node_id,
            broker.cluster_id,
            broker.endpoint,
            config.log_dir,
        )
        for name, endpoint in list(broker.network.endpoints.items())[1:]:
            logger.info("listener %s at %s", name, endpoint)
        tune_garbage_collector()
        process.ready()
        broker.failed.add_done_callback(
            lambda _: process.stop(has_failed=True, limit_s=FAILED_STOP_MAX_S)
        )
        await process.stopped()
        if process.failure is not None:
            broker.cannot_go_on(process.failure)
    before = "" if broker is not None else " before it served"
    logger.info("broker %d has stopped%s", config.node_id, before)
    return EXIT_FAILED if process.has_failed else EXIT_DONE
