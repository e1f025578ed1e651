"""`waylog broker`: one broker process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from broker_core.config import BrokerConfig
from broker_core.errors import BrokerError
from waylog.cli import EXIT_DONE, EXIT_FAILED, CommandError
from waylog.config import load_properties
from waylog.notify import notify_ready
from waylog.telemetry import configure_logging

logger = logging.getLogger(__name__)

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
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
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
    return uvloop.run(_serve(BrokerConfig.from_properties(properties)))


async def _serve(config: BrokerConfig) -> int:
    from broker_core.server.runtime import start_broker

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        broker = await start_broker(config)
    except (OSError, BrokerError) as error:
        raise CommandError(f"the broker cannot start: {error}") from error
    logger.info(
        "broker %d of cluster %s serves %s, logs in %s",
        broker.node_id,
        broker.cluster_id,
        broker.endpoint,
        config.log_dir,
    )
    notify_ready()
    broker.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    failed = broker.failed.done()
    await broker.close()
    logger.info("broker %d has stopped", broker.node_id)
    return EXIT_FAILED if failed else EXIT_DONE
