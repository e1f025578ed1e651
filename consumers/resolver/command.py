"""`waylog resolver`: one resolver process, which turns fixes into addresses."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Final

from geoservice.commands.command import watch_geocoder
from waylog.cli import EXIT_DONE, CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    ConfigError,
    check_bootstrap_servers,
    check_finite,
    check_name,
)
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.process.garbage_collection import tune_garbage_collector

logger = logging.getLogger(__name__)

DEFAULT_GROUP: Final = "resolver"

_EXAMPLES: Final = """examples:
  waylog resolver                                      the log on this machine
  waylog resolver --bootstrap-servers kafka1:9092      as many processes as you like, up to
                                                       the number of partitions of `location`
  waylog resolver --geo region.geo                     follows the file: put a new one in its place
  waylog resolver --from-earliest --index new.geo      what would a new index answer? To a topic
                                                       of its own; then
  waylog resolver compare --index new.geo              how many addresses would differ, and how
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog resolver`."""
    from consumers.resolver import re_resolve_command
    from consumers.worker.options import add_worker_options
    from geoservice.fallback.fallback import add_arguments as add_fallback_arguments

    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="Kafka brokers (default %(default)s)",
    )
    add(
        "--geo",
        "--index",
        type=Path,
        metavar="INDEX",
        help="geocoding index (default: the embedded world); a file put in its place is taken into "
        "use within a second",
    )
    add(
        "--movement-threshold",
        type=float,
        default=0.0,
        metavar="M",
        help="a fix that moved less than M metres from where its device's address was resolved is "
        "not looked up or sent again (default 0: every fix is)",
    )
    add(
        "--resend-after",
        type=float,
        default=300.0,
        metavar="S",
        help="with --movement-threshold: resolve again when the address is S seconds behind "
        "(default %(default)s)",
    )
    add(
        "--renew",
        action="store_true",
        help="look also the addresses of devices that send nothing up again when the index changes",
    )
    add("--group", default=DEFAULT_GROUP, help="consumer group (default %(default)s)")
    add_worker_options(parser, "addresses")
    add(
        "--fallback-wait",
        type=float,
        default=0.0,
        metavar="S",
        help="how long a batch may wait for the fallback (default 0: an address that comes later "
        "is sent when it comes)",
    )
    add_fallback_arguments(parser)
    re_resolve_command.add_arguments(parser)
    re_resolve_command.add_compare(parser)


def run(arguments: argparse.Namespace) -> int:
    """Resolve until SIGTERM or SIGINT, or run the re-resolve or comparison that was asked for."""
    from consumers.resolver import re_resolve_command

    if arguments.action == "compare":
        return re_resolve_command.compare(arguments)
    if re_resolve_command.is_re_resolve(arguments):
        return re_resolve_command.re_resolve(arguments)
    return _run_worker(arguments)


def check(arguments: argparse.Namespace) -> None:
    """Check the options; see waylog.cli.CommandModule."""
    from consumers.resolver import re_resolve_command
    from consumers.worker.options import check_worker_options
    from geoservice.commands.command import check_index
    from geoservice.fallback.fallback import check_arguments

    check_bootstrap_servers(arguments.bootstrap_servers)
    check_finite(arguments, "--movement-threshold", "--resend-after")
    check_finite(arguments, "--fallback-wait")
    check_name("--group", arguments.group)
    if arguments.fallback_wait < 0:
        raise ConfigError("--fallback-wait is at least 0")
    re_resolve_command.check_unused(arguments)
    if not (arguments.movement_threshold >= 0 and arguments.resend_after > 0):
        raise ConfigError("--movement-threshold is at least 0 and --resend-after more than 0")
    check_worker_options(arguments)
    check_index(arguments.geo)
    check_arguments(arguments)


def _run_worker(arguments: argparse.Namespace) -> int:
    from consumers.resolver.newest_fixes import StationaryLimits
    from consumers.resolver.renewal import Renewal
    from consumers.resolver.resolver import Resolver
    from consumers.resolver.retries import RETRY_TOPICS
    from consumers.worker.membership import TopicsDiffer
    from consumers.worker.options import worker_settings
    from consumers.worker.worker import Worker, describe
    from geoservice.fallback.fallback import from_arguments
    from waylog.kafka.clients import client_config
    from waylog.observability.log_lines import configure_logging
    from waylog.observability.telemetry import KafkaLogHandler, KafkaTelemetry
    from waylog.process.notify import notify_ready
    from waylog.process.stop_signals import on_stop_signal

    check(arguments)
    configure_logging()
    standstill = StationaryLimits(
        arguments.movement_threshold, round(arguments.resend_after * 1000)
    )
    geocoder = watch_geocoder(arguments.geo)
    fallback = from_arguments(
        arguments,
        wait_s=arguments.fallback_wait,
        bootstrap_servers=arguments.bootstrap_servers,
    )
    renewal = None
    if arguments.renew:
        renewal = Renewal(client_config(arguments.bootstrap_servers, "resolver-renewal"), ADDRESS)
    telemetry = KafkaTelemetry(arguments.bootstrap_servers, "resolver")
    logging.getLogger().addHandler(KafkaLogHandler(telemetry))

    def ready() -> None:
        logger.info(
            "resolver ready kafka=%s group=%s index=%s",
            arguments.bootstrap_servers,
            arguments.group,
            geocoder.current.index_version,
        )
        notify_ready()

    tune_garbage_collector()
    resolver = Resolver(
        geocoder,
        fallback,
        standstill=standstill,
        renewal=renewal,
        retry_topics=() if fallback is None else RETRY_TOPICS,
    )
    worker = Worker(
        arguments.bootstrap_servers,
        arguments.group,
        LOCATION,
        resolver,
        client_id="resolver",
        telemetry=telemetry,
        settings=worker_settings(arguments),
        delayed=resolver.retries,
        on_ready=ready,
    )
    on_stop_signal(worker.stop)
    try:
        worker.run()
    except TopicsDiffer as error:
        raise CommandError(str(error)) from None
    finally:
        geocoder.close()
        if renewal is not None:
            renewal.close()
        if fallback is not None:
            fallback.close()
        telemetry.close()
    logger.info("resolver stopped: %s", describe(worker.counters))
    return EXIT_DONE
