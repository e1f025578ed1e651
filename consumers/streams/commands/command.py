"""`waylog streams`: topologies that turn streams of records into others."""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from consumers.streams.commands import geofences as geofence_command
from consumers.worker.options import add_worker_options, check_worker_options, worker_settings
from waylog.cli import EXIT_DONE, CommandError
from waylog.config import (
    DEFAULT_BOOTSTRAP_SERVERS,
    ConfigError,
    check_bootstrap_servers,
    http_url,
    load_properties,
)
from waylog.console.common import add_json, pairs, print_rows

if TYPE_CHECKING:
    from consumers.streams.output_formats import OutputFormats
    from consumers.streams.processor import Topology
    from consumers.worker.worker import Worker

logger = logging.getLogger(__name__)

_ALL: Final = "all"

_EXAMPLES: Final = """examples:
  waylog streams list                                  the topologies that there are
  waylog streams run NAME                              on the log of this machine; as many
                                                       processes as the topic has partitions
  waylog streams run NAME --property limit=36          with a property of the topology
  waylog streams run speed trips --property speed.limit_kmh=130
                                                       two topologies in one process
  waylog streams run --module my_topology.py           a topology of your own
  waylog streams geofences add home --user ann --circle 47.14,9.52,150
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog streams`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_run(actions.add_parser("run", help="run topologies until SIGTERM or SIGINT"))
    listing = actions.add_parser("list", help="list the topologies that are installed")
    add_json(listing)
    geofences = actions.add_parser("geofences", help="add, list, import and remove geofences")
    geofence_command.add_arguments(geofences)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help="topologies of `waylog streams list`, or `all`; they run in this process",
    )
    add("--module", type=Path, metavar="FILE.py", help="take the topology from a Python file")
    add(
        "--bootstrap-servers",
        default=DEFAULT_BOOTSTRAP_SERVERS,
        metavar="LIST",
        help="Kafka brokers (default %(default)s)",
    )
    add(
        "--property",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the topology (docs/streams.md lists them), or TOPOLOGY.NAME=VALUE, "
        "which is needed if there are several; may be given several times",
    )
    add(
        "--value-format",
        dest="value_formats",
        action="append",
        default=[],
        metavar="TOPIC=FORMAT",
        help="a topic that a topology writes has another format than JSON, one of `waylog consume` "
        "but for its texts: avro, protobuf, ...; may be given several times",
    )
    add(
        "--value-schema",
        dest="value_schemas",
        action="append",
        default=[],
        metavar="TOPIC=FILE",
        help="the schema that is written (default: for avro that of the topology's messages, else "
        "the newest one of subject TOPIC-value)",
    )
    add("--schema-registry", metavar="URL", help="has the schemas")
    add(
        "--schema-registry-config",
        type=Path,
        metavar="FILE",
        help="properties for it, in the names of Confluent's clients",
    )
    add_worker_options(parser, "results, states")


def check(arguments: argparse.Namespace) -> None:
    """Check the options; see waylog.cli.CommandModule."""
    if arguments.action == "run":
        check_bootstrap_servers(arguments.bootstrap_servers)
        check_worker_options(arguments)
        formats = _output_formats(arguments, _topologies(arguments))
        if formats is not None:
            formats.close()


def run(arguments: argparse.Namespace) -> int:
    """Run topologies, or list them, or change geofences."""
    if arguments.action == "list":
        return _list(arguments.json)
    if arguments.action == "geofences":
        return geofence_command.run(arguments)
    return _run(arguments)


def _list(as_json: bool) -> int:
    from consumers.streams import registry

    rows = [{"name": name, "summary": registry.summary(name)} for name in registry.names()]
    print_rows(rows, as_json=as_json)
    return EXIT_DONE


def _topologies(arguments: argparse.Namespace) -> list[Topology]:
    from consumers.streams import registry
    from consumers.streams.properties import Properties, of_topologies

    names = arguments.names
    if names == [_ALL]:
        names = [each for each in registry.names() if each not in registry.NEEDING_PROPERTIES]
    if arguments.module is not None:
        if len(names) > 1:
            raise ConfigError("--module: name one topology of the file")
        factories = [registry.find_in_file(arguments.module, names[0] if names else None)]
        names = names or [""]
    elif names:
        if len(set(names)) < len(names):
            raise ConfigError("a topology is named twice")
        factories = [registry.find(name) for name in names]
    else:
        raise ConfigError("name a topology of `waylog streams list`, or give --module FILE.py")
    texts = of_topologies(pairs(arguments.properties, "--property"), names)
    topologies = []
    for name, factory in zip(names, factories, strict=True):
        properties = Properties(texts[name])
        topology = factory(properties)
        properties.check_all_known(topology.name)
        registry.check_groups(topology, None if arguments.module is not None else name)
        topologies.append(topology)
    return topologies


def _output_formats(
    arguments: argparse.Namespace, topologies: Sequence[Topology]
) -> OutputFormats | None:
    formats = pairs(arguments.value_formats, "--value-format")
    schemas = pairs(arguments.value_schemas, "--value-schema")
    if not formats and not schemas:
        return None
    from consumers.streams.output_formats import output_formats
    from waylog.serialization.by_name import URL

    config = arguments.schema_registry_config
    registry = load_properties(config) if config is not None else {}
    if arguments.schema_registry is not None:
        registry[URL] = http_url(arguments.schema_registry)
    return output_formats(formats, schemas, registry, topologies)


def _run(arguments: argparse.Namespace) -> int:
    from confluent_kafka import KafkaException

    from consumers.streams import registry
    from consumers.streams.runner import TopologyRun
    from consumers.streams.start_checks import OutputMissing
    from consumers.worker.membership import TopicsDiffer
    from waylog.kafka.clients import LogUnreachable
    from waylog.kafka.errors import error_text
    from waylog.observability.log_lines import configure_logging
    from waylog.observability.telemetry import KafkaLogHandler, KafkaTelemetry
    from waylog.process.garbage_collection import tune_garbage_collector
    from waylog.process.notify import notify_ready
    from waylog.process.stop_signals import on_stop_signal

    check(arguments)
    configure_logging()
    topologies = _topologies(arguments)
    stopping = threading.Event()
    workers: list[Worker[Any]] = []

    def stop() -> None:
        stopping.set()
        for worker in workers:
            worker.stop()

    on_stop_signal(stop)
    telemetry = KafkaTelemetry(arguments.bootstrap_servers, "streams")
    logging.getLogger().addHandler(KafkaLogHandler(telemetry))

    def ready() -> None:
        for topology in topologies:
            logger.info("topology %s ready kafka=%s", topology.name, arguments.bootstrap_servers)
        notify_ready()

    tune_garbage_collector()
    running = TopologyRun(
        topologies,
        arguments.bootstrap_servers,
        worker_settings(arguments),
        telemetry,
        ready,
        None if arguments.module is None else registry.origin(arguments.module),
        _output_formats(arguments, topologies),
    )
    try:
        running.run(stopping, workers)
    except (OutputMissing, TopicsDiffer, LogUnreachable, KafkaException) as error:
        raise CommandError(error_text(error)) from None
    finally:
        telemetry.close()
    return EXIT_DONE
