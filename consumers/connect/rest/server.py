"""Serves Kafka Connect's REST interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from consumers.connect.distributed.distributed_worker import DistributedWorker
from consumers.connect.rest import connectors, internal, worker_paths
from consumers.connect.rest.bodies import BODY_BYTES_MAX, errors
from consumers.connect.rest.forwarding import forward, session
from consumers.connect.rest.logins import Logins
from consumers.connect.rest.origins import Origins
from consumers.connect.worker.connect_worker import ConnectWorker
from waylog.network.bound_listeners import Listener
from waylog.network.chunked_requests import end_connections_after_chunks
from waylog.network.served_hosts import ServedHosts

_SHUTDOWN_S: Final = 2.0


def make_application(worker: ConnectWorker, listening: str) -> web.Application:
    """Return the application for a listener on a host; the caller runs it."""
    settings = worker.settings
    more = [settings.advertised_host] if settings.advertised_host else []
    hosts = ServedHosts(listening, more)
    origins = Origins(hosts, settings.allowed_origin, settings.allowed_methods)
    middlewares = [errors, origins.check]
    security = settings.rest_security
    if security.credentials is not None:
        middlewares.append(Logins(security.credentials).check)
    application = web.Application(
        middlewares=[*middlewares, forward], client_max_size=BODY_BYTES_MAX
    )
    end_connections_after_chunks(application)
    application[connectors.WORKER] = worker
    routes = [*connectors.routes(), *worker_paths.routes()]
    if isinstance(worker, DistributedWorker):
        application[internal.WORKER] = worker
        application.cleanup_ctx.append(session(security.client))
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
        settings = worker.settings
        for configured, listener in zip(settings.listeners, listeners, strict=True):
            context = settings.rest_security.server if configured.is_tls else None
            application = make_application(worker, listener.endpoint.host)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
            self._runners.append(runner)
            await runner.setup()
            for each in listener.sockets:
                await web.SockSite(runner, each, ssl_context=context).start()

    async def close(self) -> None:
        """Serve no more."""
        for runner in self._runners:
            await runner.cleanup()
