"""`waylog connect`: a worker that runs connectors of Kafka Connect's kind."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import ConfigError, Endpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import TypeVar

    from consumers.connect.configuration.variables import Variables
    from consumers.connect.distributed.distributed_settings import DistributedSettings
    from consumers.connect.distributed.distributed_worker import DistributedWorker
    from consumers.connect.herder.requests import CreateRequest
    from consumers.connect.worker.standalone import StandaloneWorker
    from consumers.connect.worker.worker_settings import WorkerSettings
    from waylog.network.bound_listeners import Listener
    from waylog.process.serving import ServingProcess

    _W = TypeVar("_W", StandaloneWorker, DistributedWorker)

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

  waylog connect distributed worker.properties
                                     one of several workers that share connectors

worker.properties has at least:
  bootstrap.servers=127.0.0.1:9092
  key.converter=org.apache.kafka.connect.storage.StringConverter
  value.converter=org.apache.kafka.connect.storage.StringConverter
  offset.storage.file.filename=/var/lib/connect/offsets.json    (standalone)
  group.id=connect  config.storage.topic=connect-configs  offset.storage.topic=connect-offsets
  status.storage.topic=connect-status                           (distributed; a line each)
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
        _DISTRIBUTED,
        help="one of several workers that share connectors, and keep all in topics",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        _read_distributed(arguments.worker)
        return
    _read_settings(arguments.worker)
    _read_connectors(arguments.connectors)


def run(arguments: argparse.Namespace) -> int:
    """Run the worker until SIGTERM or SIGINT."""
    from waylog.observability.log_lines import configure_logging
    from waylog.process.file_limit import raise_file_limit
    from waylog.process.memory_allocation import tune_memory_allocator

    check(arguments)
    raise_file_limit()
    tune_memory_allocator()
    configure_logging()
    if arguments.action == _DISTRIBUTED:
        shared, variables, unknown = _read_distributed(arguments.worker)
        _tell_unknown(arguments.worker, unknown)
        return _run_distributed(shared, variables)
    settings, variables, unknown = _read_settings(arguments.worker)
    _tell_unknown(arguments.worker, unknown)
    return _run_standalone(settings, variables, _read_connectors(arguments.connectors))


def _tell_unknown(path: Path, sentences: Sequence[str]) -> None:
    for sentence in sentences:
        logger.warning("%s: %s", path, sentence)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is no text in UTF-8") from None


def _read_settings(path: Path) -> tuple[WorkerSettings, Variables, list[str]]:
    """Return what the file of a worker on its own says, and sentences about unknown properties."""
    from consumers.connect.worker.worker_settings import (
        STANDALONE_CONFIG,
        unknown_properties,
        worker_settings,
    )

    with _properties_of(path) as (properties, variables):
        settings = worker_settings(properties, variables)
        _check_clients(settings)
    return settings, variables, unknown_properties(properties, STANDALONE_CONFIG)


def _read_distributed(path: Path) -> tuple[DistributedSettings, Variables, list[str]]:
    """Return what the file of one of several workers says, and sentences about the rest."""
    from consumers.connect.distributed.distributed_settings import (
        DISTRIBUTED_CONFIG,
        distributed_settings,
        group_security,
    )
    from consumers.connect.worker.worker_settings import unknown_properties

    with _properties_of(path) as (properties, variables):
        settings = distributed_settings(properties, variables)
        _check_clients(settings.worker)
        try:
            group_security(settings.worker)
        except ConfigError as error:
            raise ConfigError(f"{path}: the workers' group: {error}") from None
    names = {
        name: text
        for name, text in properties.items()
        if not name.startswith(("config.storage.", "offset.storage.", "status.storage."))
    }
    return settings, variables, unknown_properties(names, DISTRIBUTED_CONFIG)


@contextlib.contextmanager
def _properties_of(path: Path) -> Iterator[tuple[dict[str, str], Variables]]:
    """Give a file's properties; what is wrong with them is a ConfigError that names the file."""
    from consumers.connect.configuration.exceptions import ConfigException
    from consumers.connect.java.properties_file import PropertiesError, parse_properties
    from consumers.connect.worker.worker_settings import make_variables

    try:
        properties = parse_properties(_read_text(path))
        yield (
            properties,
            make_variables(
                properties, lambda name: Path(name).read_text(encoding="utf-8"), os.environ
            ),
        )
    except (ConfigException, PropertiesError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _check_clients(settings: WorkerSettings) -> None:
    """Raise ConfigException for properties of converters and clients that are not valid."""
    from consumers.connect.tasks.client_properties import ClientProperties
    from consumers.connect.tasks.converters import make_pipeline

    make_pipeline(settings.properties, {})
    ClientProperties(settings.bootstrap_servers, settings.properties, {}).admin("check")


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
    from consumers.connect.data.exceptions import ConnectException
    from consumers.connect.storage.offset_file import OffsetFile
    from consumers.connect.worker.standalone import StandaloneWorker
    from consumers.connect.worker.worker_settings import OFFSET_FILE
    from waylog.folders import check_folder

    try:
        check_folder(settings.offset_file.parent, OFFSET_FILE)
        offsets = OffsetFile(settings.offset_file)
    except ConnectException as error:
        raise CommandError(str(error)) from None

    def make(worker_id: Endpoint, cluster: str) -> StandaloneWorker:
        return StandaloneWorker(
            settings, variables, offsets, worker_id=str(worker_id), cluster_id=cluster
        )

    async def begin(worker: StandaloneWorker, process: ServingProcess) -> None:
        for each in connectors:
            await process.start(_create(worker, each))

    return _run_worker(settings, make, begin)


def _run_distributed(settings: DistributedSettings, variables: Variables) -> int:
    from consumers.connect.distributed.distributed_worker import DistributedWorker

    def make(worker_id: Endpoint, cluster: str) -> DistributedWorker:
        return DistributedWorker(
            settings,
            variables,
            worker_id=str(worker_id),
            url=f"{settings.worker.advertised.scheme}://{worker_id}/",
            cluster_id=cluster,
        )

    return _run_worker(settings.worker, make, _take_place, lambda: _ensure_topics(settings))


async def _take_place(worker: DistributedWorker, process: ServingProcess) -> None:
    """Join the group."""
    from waylog.kafka.clients import LogUnreachable

    try:
        await process.start(worker.start())
    except LogUnreachable as error:
        raise CommandError(str(error)) from None
    await process.start(worker.settled())


def _ensure_topics(settings: DistributedSettings) -> None:
    """Create or check the topics of the workers; raises CommandError."""
    from confluent_kafka import KafkaException

    from consumers.connect.configuration.exceptions import ConfigException
    from consumers.connect.tasks.client_properties import ClientProperties
    from consumers.connect.topics.internal_topics import ensure_internal_topics
    from waylog.kafka.errors import error_text

    worker = settings.worker
    clients = ClientProperties(worker.bootstrap_servers, worker.properties, {})
    try:
        ensure_internal_topics(clients.admin("connect-topics"), settings.topics)
    except ConfigException as error:
        raise CommandError(str(error)) from None
    except KafkaException as error:
        raise CommandError(f"topics of the workers: {error_text(error)}") from None


def _run_worker(
    settings: WorkerSettings,
    make: Callable[[Endpoint, str], _W],
    begin: Callable[[_W, ServingProcess], Awaitable[None]],
    prepare: Callable[[], None] = lambda: None,
) -> int:
    """Run a worker.

    `prepare` is called when the cluster answers, and may block. `make` makes the worker; `begin`
    has it begin.
    """
    import uvloop

    listeners = _bind(settings)
    stopping = threading.Event()
    cluster = _wait_for_cluster(settings, stopping)
    if cluster is None:
        return EXIT_DONE
    prepare()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, listeners, cluster, make, begin, stopping))


def _bind(settings: WorkerSettings) -> list[Listener]:
    from waylog.network.bound_listeners import bind

    try:
        return [bind(each.endpoint) for each in settings.listeners]
    except OSError as error:
        raise CommandError(error.strerror or str(error)) from None


def _wait_for_cluster(settings: WorkerSettings, stopping: threading.Event) -> str | None:
    """Return the cluster's id, None if a signal comes first, which sets `stopping`."""
    from confluent_kafka import KafkaException

    from consumers.connect.tasks.client_properties import ClientProperties
    from consumers.connect.worker.kafka_cluster import cluster_id
    from waylog.kafka.clients import LogUnreachable
    from waylog.kafka.errors import error_text
    from waylog.process.stop_signals import on_stop_signal

    on_stop_signal(stopping.set)
    try:
        clients = ClientProperties(settings.bootstrap_servers, settings.properties, {})
        return cluster_id(clients, settings.bootstrap_servers, stopping)
    except LogUnreachable as error:
        raise CommandError(str(error)) from None
    except KafkaException as error:
        raise CommandError(f"properties of Kafka clients: {error_text(error)}") from None


async def _serve(
    settings: WorkerSettings,
    listeners: Sequence[Listener],
    cluster: str,
    make: Callable[[Endpoint, str], _W],
    begin: Callable[[_W, ServingProcess], Awaitable[None]],
    stopped_early: threading.Event,
) -> int:
    """Serve until a signal (return 0), or until background work fails (return 1).

    Raises CommandError for what keeps the worker from beginning.
    """
    from consumers.connect.rest.server import RestServer
    from waylog.process.serving import serving

    async with serving(callbacks_of=("consumers.", "waylog.")) as process:
        if stopped_early.is_set():
            return EXIT_DONE
        endpoint = listeners[settings.advertised_listener].endpoint
        worker_id = Endpoint(
            settings.advertised_host or endpoint.host or "127.0.0.1",
            settings.advertised_port or endpoint.port,
        )
        worker = make(worker_id, cluster)
        process.closing.push_async_callback(worker.close)
        server = RestServer()
        process.closing.push_async_callback(server.close)
        await server.start(worker, listeners)
        await begin(worker, process)
        _ready(worker, worker_id, process)
        await process.stopped()
        logger.info("stopping")
    logger.info("connect worker stopped")
    return EXIT_FAILED if process.has_failed else EXIT_DONE


async def _create(worker: StandaloneWorker, request: CreateRequest) -> None:
    """Create a connector; raises CommandError."""
    from consumers.connect.data.exceptions import ConnectException

    name = request.name
    operation = worker.herder.put(name, request.config, request.target, may_replace=False)
    try:
        await worker.run(name, operation)
    except ConnectException as error:
        cause = f": {error.__cause__}" if error.__cause__ is not None else ""
        raise CommandError(f"connector {name}: {error}{cause}") from None
    logger.info("connector %s has been created", name)


def _ready(
    worker: StandaloneWorker | DistributedWorker, worker_id: Endpoint, process: ServingProcess
) -> None:
    from waylog.process.garbage_collection import tune_garbage_collector

    worker.is_ready = True
    tune_garbage_collector()
    settings = worker.settings
    logger.info(
        "connect worker ready %s://%s kafka=%s",
        *(settings.advertised.scheme, worker_id, settings.bootstrap_servers),
    )
    process.ready()
