"""The life cycle of a process of this package: start, run until told to stop, end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, Protocol

from waylog.cli import EXIT_DONE, EXIT_FAILED
from waylog.config import ConfigError
from waylog.observability.telemetry import KafkaLogHandler, KafkaTelemetry
from waylog.process.file_limit import raise_file_limit
from waylog.process.memory_allocation import tune_memory_allocator
from waylog.process.serving import serving
from waylog.process.stop_limit import StopLimit

logger = logging.getLogger(__name__)

#: Modules whose callbacks keep the process going, so that it ends when one of them fails...
CALLBACKS_OF: Final = ("gateway.", "geoservice.", "waylog.")
#: ...but for those that serve one client: what one can cause must not end the others' connections.
OF_ONE_CLIENT: Final = (
    "gateway.http.ingest.",
    "gateway.http.plain.plain_connection",
    "gateway.http.plain.stepped_input",
    "gateway.http.starting",
    "gateway.mqtt.listening.connection_preamble",
    "gateway.mqtt.sessions.",
    "gateway.views.address_view",
    "waylog.network.reading_watch",
    "waylog.network.tls.handshakes",
)


class Writer(Protocol):
    """What the process writes to the log with."""

    @property
    def fatal(self) -> str | None:
        """Why nothing can be written until a new start, None as long as it can."""


class Started(NamedTuple):
    """A process that serves."""

    producer: Writer
    where: str  # its addresses, for the log line that says it is ready


_limit = StopLimit()


def run_service(service: Coroutine[Any, Any, int]) -> int:
    """Run what calls `serve_until_stopped` as this process's only work; return its status."""
    tune_memory_allocator()
    import uvloop

    _limit.armed = True
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(service)


async def serve_until_stopped(
    bootstrap_servers: str,
    client_id: str,
    start: Callable[[KafkaTelemetry, AsyncExitStack], Awaitable[Started]],
    *,
    name: str = "gateway",
) -> int:
    """Run until SIGTERM or SIGINT (return 0), or until the process cannot go on (return 1).

    Everything that `start` puts on the stack is closed at the end, even if the start is
    interrupted.
    """
    raise_file_limit()
    loop = asyncio.get_running_loop()
    stopping_since = None
    async with serving(
        callbacks_of=CALLBACKS_OF,
        except_of=OF_ONE_CLIENT,
        # Such as values of the log that are sealed from now on, for a process without the key.
        mistakes=(ConfigError,),
        limit=_limit,
    ) as process:
        telemetry = KafkaTelemetry(bootstrap_servers, client_id)
        handler = KafkaLogHandler(telemetry)
        logging.getLogger().addHandler(handler)
        process.closing.callback(telemetry.close)
        process.closing.callback(logging.getLogger().removeHandler, handler)
        producer, where = await process.start(start(telemetry, process.closing))
        process.ready()
        logger.info("%s ready %s", name, where)
        # The supervisor starts another process with a new producer.
        await process.stopped(lambda: producer.fatal)
        logger.info("stopping")
        stopping_since = loop.time()
    if stopping_since is not None:
        logger.info("%s stopped after %.1f s", name, loop.time() - stopping_since)
    # After a failure the supervisor starts another process.
    return EXIT_FAILED if process.has_failed else EXIT_DONE
