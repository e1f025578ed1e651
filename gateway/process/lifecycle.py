"""The life cycle of a process of this package: start, run until told to stop, end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, Protocol

from waylog.observability.telemetry import KafkaLogHandler, KafkaTelemetry
from waylog.process.background import end_on_failure
from waylog.process.file_limit import raise_file_limit
from waylog.process.memory_allocation import tune_memory_allocator
from waylog.process.notify import notify_ready
from waylog.process.stop_limit import FAILED_STOP_MAX_S, StopLimit
from waylog.process.watchdog import EventLoopWatchdog

logger = logging.getLogger(__name__)

_WATCH_S: Final = 0.5
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
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    raise_file_limit()
    unexpected: list[Exception] = []

    def end(error: Exception) -> None:
        if not unexpected:
            _limit.begin(FAILED_STOP_MAX_S)
        unexpected.append(error)
        stop.set()

    end_on_failure(loop, end, callbacks_of=CALLBACKS_OF, except_of=OF_ONE_CLIENT)
    # Closing may take longer than the supervisor waits for a sign of progress.
    stopping_since = loop.time()
    async with AsyncExitStack() as last, AsyncExitStack() as stack:
        telemetry = KafkaTelemetry(bootstrap_servers, client_id)
        handler = KafkaLogHandler(telemetry)
        logging.getLogger().addHandler(handler)
        stack.callback(telemetry.close)
        stack.callback(logging.getLogger().removeHandler, handler)
        starting = asyncio.ensure_future(start(telemetry, stack))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            _limit.begin()
            starting.cancel()
            await asyncio.wait((starting,))
            return 1 if unexpected else 0
        stopping.cancel()
        producer, where = starting.result()
        notify_ready()
        last.callback(EventLoopWatchdog(loop).close)
        logger.info("%s ready %s", name, where)
        while not stop.is_set():
            if producer.fatal is not None:
                # The supervisor starts another process with a new producer.
                logger.critical("stopping: %s", producer.fatal)
                _limit.begin()
                return 1
            try:
                async with asyncio.timeout(_WATCH_S):
                    await stop.wait()
            except TimeoutError:
                continue
        logger.info("stopping")
        stopping_since = loop.time()
        _limit.begin()
    logger.info("%s stopped after %.1f s", name, loop.time() - stopping_since)
    # After an unexpected failure the supervisor starts another process.
    return 1 if unexpected else 0
