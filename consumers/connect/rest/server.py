"""Serves Kafka Connect's REST interface."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

from aiohttp import web

from consumers.connect.distributed.distributed_worker import DistributedWorker
from consumers.connect.rest import connectors, internal, worker_paths
from consumers.connect.rest.bodies import BODY_BYTES_MAX, errors
from consumers.connect.rest.forwarding import forward, session
from consumers.connect.rest.origins import Origins
from consumers.connect.worker.connect_worker import ConnectWorker
from waylog.config import Endpoint
from waylog.network.bind_addresses import bind_addresses
from waylog.network.chunked_requests import end_connections_after_chunks
from waylog.network.free_ports import bound_socket
from waylog.network.served_hosts import ServedHosts

_SHUTDOWN_S: Final = 2.0
_BACKLOG: Final = 128


class Listener(NamedTuple):
    """Bound sockets of one of the `listeners`."""

    endpoint: Endpoint  # as it is reached: with the port that the system chose
    sockets: list[socket.socket]


def bind(endpoint: Endpoint) -> Listener:
    """Bind the addresses of a listener; raises OSError."""
    sockets: list[socket.socket] = []
    port = endpoint.port
    try:
        for address in bind_addresses(endpoint):
            each = bound_socket(Endpoint(address, port))
            sockets.append(each)
            port = each.getsockname()[1]
            each.listen(_BACKLOG)
            each.setblocking(False)
    except OSError as error:
        for each in sockets:
            each.close()
        where = Endpoint(endpoint.host or "*", port)
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
    return Listener(Endpoint(endpoint.host, port), sockets)


def make_application(worker: ConnectWorker, listening: str) -> web.Application:
    """Return the application for a listener on a host; the caller runs it."""
    settings = worker.settings
    more = [settings.advertised_host] if settings.advertised_host else []
    hosts = ServedHosts(listening, more)
    origins = Origins(hosts, settings.allowed_origin, settings.allowed_methods)
    application = web.Application(
        middlewares=[errors, origins.check, forward], client_max_size=BODY_BYTES_MAX
    )
    end_connections_after_chunks(application)
    application[connectors.WORKER] = worker
    routes = [*connectors.routes(), *worker_paths.routes()]
    if isinstance(worker, DistributedWorker):
        application[internal.WORKER] = worker
        application.cleanup_ctx.append(session)
        routes += internal.routes()
    for route in routes:
        # Kafka's server takes a slash at the end of any path.
        for path in {route.path, route.path.rstrip("/") + "/"}:
            same = web.RouteDef(route.method, path, route.handler, route.kwargs)
            application.add_routes([same])
    return application


class RestServer:
    """The REST interface on all listeners."""

    def __init__(self) -> None:
        self._runners: Final[list[web.AppRunner]] = []

    async def start(self, worker: ConnectWorker, listeners: Sequence[Listener]) -> None:
        """Serve."""
        for listener in listeners:
            application = make_application(worker, listener.endpoint.host)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
            self._runners.append(runner)
            await runner.setup()
            for each in listener.sockets:
                await web.SockSite(runner, each).start()

    async def close(self) -> None:
        """Serve no more."""
        for runner in self._runners:
            await runner.cleanup()
