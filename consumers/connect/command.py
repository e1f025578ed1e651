"""`waylog connect`: a worker that runs connectors of Kafka Connect's kind."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import ConfigError, Endpoint

if TYPE_CHECKING:
    from consumers.connect.configuration.variables import Variables
    from consumers.connect.herder.requests import CreateRequest
    from consumers.connect.rest.server import Listener
    from consumers.connect.storage.offset_file import OffsetFile
    from consumers.connect.worker.standalone import StandaloneWorker
    from consumers.connect.worker.worker_settings import WorkerSettings

logger = logging.getLogger(__name__)

_STANDALONE: Final = "standalone"
_DISTRIBUTED: Final = "distributed"
_EXAMPLES: Final = """examples:
  waylog connect standalone worker.properties source.properties sink.json
                                     a worker with two connectors, until Ctrl-C
  waylog connect standalone worker.properties
                                     connectors are created over HTTP, for instance by
  curl http://127.0.0.1:8083/connectors -H 'Content-Type: application/json' -d '{"name":
      "out","config":{"connector.class":"FileStreamSink","topics":"a","file":"/tmp/a.txt"}}'

worker.properties has at least:
  bootstrap.servers=127.0.0.1:9092
  key.converter=org.apache.kafka.connect.storage.StringConverter
  value.converter=org.apache.kafka.connect.storage.StringConverter
  offset.storage.file.filename=/var/lib/connect/offsets.json
"""
_CONNECTOR_HELP: Final = (
    "a connector's configuration: JSON, as the REST interface takes it or the properties alone, "
    "or a properties file"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `waylog connect`."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    standalone = actions.add_parser(
        _STANDALONE,
        help="one worker, which keeps offsets in a file",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    distributed = actions.add_parser(
        _DISTRIBUTED, help="several workers that share connectors (not there yet)"
    )
    for each in (standalone, distributed):
        each.add_argument(
            "worker", type=Path, metavar="WORKER.properties", help="the worker's properties"
        )
    standalone.add_argument(
        "connectors", type=Path, nargs="*", metavar="CONNECTOR", help=_CONNECTOR_HELP
    )


def check(arguments: argparse.Namespace) -> None:
    """Check the worker's properties and the connectors' files; see waylog.cli.CommandModule."""
    if arguments.action == _DISTRIBUTED:
        raise CommandError(
            "workers that share connectors are not there yet; `waylog connect standalone` runs "
            "one worker"
        )
    _read_settings(arguments.worker)
    _read_connectors(arguments.connectors)


def run(arguments: argparse.Namespace) -> int:
    """Run the worker until SIGTERM or SIGINT."""
    from waylog.observability.log_lines import configure_logging
    from waylog.process.memory_allocation import tune_memory_allocator

    check(arguments)
    tune_memory_allocator()
    configure_logging()
    settings, variables, unknown = _read_settings(arguments.worker)
    for sentence in unknown:
        logger.warning("%s: %s", arguments.worker, sentence)
    return _run_standalone(settings, variables, _read_connectors(arguments.connectors))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text in UTF-8") from None


def _read_settings(path: Path) -> tuple[WorkerSettings, Variables, list[str]]:
    """Return what the worker's file says, and sentences about unknown properties."""
    from consumers.connect.configuration.exceptions import ConfigException
    from consumers.connect.java.properties_file import PropertiesError, parse_properties
    from consumers.connect.tasks.client_properties import ClientProperties
    from consumers.connect.tasks.converters import make_pipeline
    from consumers.connect.worker.worker_settings import (
        make_variables,
        unknown_properties,
        worker_settings,
    )

    try:
        properties = parse_properties(_read_text(path))
        variables = make_variables(
            properties, lambda name: Path(name).read_text(encoding="utf-8"), os.environ
        )
        settings = worker_settings(properties, variables)
        make_pipeline(settings.properties, {})
        ClientProperties(settings.bootstrap_servers, settings.properties, {}).admin("check")
    except (ConfigException, PropertiesError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return settings, variables, unknown_properties(properties)


def _read_connectors(paths: Sequence[Path]) -> list[CreateRequest]:
    from consumers.connect.data.exceptions import ConnectException
    from consumers.connect.herder.requests import parse_connector_file

    requests = []
    for path in paths:
        try:
            requests.append(parse_connector_file(_read_text(path), str(path)))
        except ConnectException as error:
            raise ConfigError(str(error)) from None
    return requests


def _run_standalone(
    settings: WorkerSettings, variables: Variables, connectors: Sequence[CreateRequest]
) -> int:
    import uvloop

    from consumers.connect.data.exceptions import ConnectException
    from consumers.connect.storage.offset_file import OffsetFile
    from consumers.connect.worker.worker_settings import OFFSET_FILE
    from waylog.folders import check_folder

    try:
        check_folder(settings.offset_file.parent, OFFSET_FILE)
        offsets = OffsetFile(settings.offset_file)
    except ConnectException as error:
        raise CommandError(str(error)) from None
    listeners = _bind(settings)
    stopping = threading.Event()
    cluster = _wait_for_cluster(settings, stopping)
    if cluster is None:
        return EXIT_DONE
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            _serve(settings, variables, offsets, listeners, cluster, connectors, stopping)
        )


def _bind(settings: WorkerSettings) -> list[Listener]:
    from consumers.connect.rest.server import bind

    try:
        return [bind(each) for each in settings.listeners]
    except OSError as error:
        raise CommandError(error.strerror or str(error)) from None


def _wait_for_cluster(settings: WorkerSettings, stopping: threading.Event) -> str | None:
    """Return the cluster's id, None if a signal comes first, which sets `stopping`."""
    from confluent_kafka import KafkaException

    from consumers.connect.tasks.client_properties import ClientProperties
    from consumers.connect.worker.kafka_cluster import cluster_id
    from waylog.kafka.clients import LogUnreachable
    from waylog.kafka.errors import error_text

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        clients = ClientProperties(settings.bootstrap_servers, settings.properties, {})
        return cluster_id(clients, settings.bootstrap_servers, stopping)
    except LogUnreachable as error:
        raise CommandError(str(error)) from None
    except KafkaException as error:
        raise CommandError(f"properties of Kafka clients: {error_text(error)}") from None


async def _serve(
    settings: WorkerSettings,
    variables: Variables,
    offsets: OffsetFile,
    listeners: Sequence[Listener],
    cluster: str,
    connectors: Sequence[CreateRequest],
    stopped_early: threading.Event,
) -> int:
    """Serve until a signal (return 0), or until background work fails (return 1).

    Raises CommandError for a connector of the command line that cannot be created.
    """
    from consumers.connect.rest.server import RestServer
    from consumers.connect.worker.standalone import StandaloneWorker
    from waylog.process.background import end_on_failure
    from waylog.process.stop_limit import FAILED_STOP_MAX_S, StopLimit
    from waylog.process.watchdog import EventLoopWatchdog

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    if stopped_early.is_set():
        return EXIT_DONE
    unexpected: list[Exception] = []
    limit = StopLimit()
    limit.armed = True

    def end(error: Exception) -> None:
        if not unexpected:
            limit.begin(FAILED_STOP_MAX_S)
        unexpected.append(error)
        stopping.set()

    end_on_failure(loop, end, callbacks_of=("consumers.", "waylog."))
    endpoint = listeners[0].endpoint
    worker_id = Endpoint(
        settings.advertised_host or endpoint.host or "127.0.0.1",
        settings.advertised_port or endpoint.port,
    )
    worker = StandaloneWorker(
        settings, variables, offsets, worker_id=str(worker_id), cluster_id=cluster
    )
    server = RestServer()
    watchdog = None
    try:
        await server.start(worker, listeners)
        if await _create(worker, connectors, stopping):
            _ready(worker, worker_id)
            watchdog = EventLoopWatchdog(loop)
            await stopping.wait()
        logger.info("stopping")
    finally:
        limit.begin()
        await server.close()
        await worker.close()
        if watchdog is not None:
            watchdog.close()
    logger.info("connect worker stopped")
    return EXIT_FAILED if unexpected else EXIT_DONE


async def _create(
    worker: StandaloneWorker, connectors: Sequence[CreateRequest], stopping: asyncio.Event
) -> bool:
    """Create connectors one after the other; return False if the worker is to stop meanwhile."""
    from consumers.connect.data.exceptions import ConnectException

    for request in connectors:
        if stopping.is_set():
            return False
        name = request.name
        operation = worker.herder.put(name, request.config, request.target, may_replace=False)
        try:
            await worker.run(name, operation)
        except ConnectException as error:
            cause = f": {error.__cause__}" if error.__cause__ is not None else ""
            raise CommandError(f"connector {name}: {error}{cause}") from None
        logger.info("connector %s has been created", name)
    return not stopping.is_set()


def _ready(worker: StandaloneWorker, worker_id: Endpoint) -> None:
    from waylog.process.garbage_collection import tune_garbage_collector
    from waylog.process.notify import notify_ready

    worker.is_ready = True
    tune_garbage_collector()
    settings = worker.settings
    logger.info("connect worker ready http://%s kafka=%s", worker_id, settings.bootstrap_servers)
    notify_ready()
