"""The other paths: the worker itself, its plugins and its loggers."""

from __future__ import annotations

import logging

from aiohttp import hdrs, web

from consumers.connect.configuration.connector_properties import CONNECTOR_CLASS
from consumers.connect.herder.refusals import BadRequest, NotFound
from consumers.connect.herder.requests import texts
from consumers.connect.observability.exposition import Exposition
from consumers.connect.rest.bodies import answer, empty, flag, json_body
from consumers.connect.rest.connectors import WORKER
from consumers.connect.worker.log_levels import is_level
from consumers.connect.worker.plugin_table import same_plugin, waylog_version

logger = logging.getLogger(__name__)


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    return [
        web.get("/", _root),
        web.get("/health", _health),
        web.get("/metrics", _metrics),
        web.get("/connector-plugins", _plugins),
        web.get("/connector-plugins/{plugin}/config", _plugin_config),
        web.put("/connector-plugins/{plugin}/config/validate", _validate),
        web.get("/admin/loggers", _loggers),
        web.get("/admin/loggers/{logger}", _logger),
        web.put("/admin/loggers/{logger}", _set_level),
    ]


async def _root(request: web.Request) -> web.Response:
    return answer(
        {
            "version": waylog_version(),
            "commit": "unknown",
            "kafka_cluster_id": request.app[WORKER].cluster_id,
        }
    )


async def _health(request: web.Request) -> web.Response:
    """Kafka waits for a worker that starts; the status is the same (KIP-1017)."""
    if not request.app[WORKER].is_ready:
        starting = {"status": "starting", "message": "Worker is still starting up."}
        return answer(starting, 503)
    return answer(
        {
            "status": "healthy",
            "message": "Worker has completed startup and is ready to handle requests.",
        }
    )


async def _metrics(request: web.Request) -> web.Response:
    page, content_type = Exposition(request.app[WORKER].measures).page()
    return web.Response(body=page, headers={hdrs.CONTENT_TYPE: content_type})


async def _plugins(request: web.Request) -> web.Response:
    only = flag(request, "connectorsOnly", default=True)
    return answer(request.app[WORKER].plugins.listed(connectors_only=only))


async def _plugin_config(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].plugins.properties_of(request.match_info["plugin"]))


async def _validate(request: web.Request) -> web.Response:
    plugin = request.match_info["plugin"]
    properties = texts(await json_body(request))
    included = properties.get(CONNECTOR_CLASS)
    if included is not None and not same_plugin(included, plugin):
        raise BadRequest(f"Included connector type {included} does not match request type {plugin}")
    return answer(await request.app[WORKER].worker.validate(properties))


async def _loggers(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].levels.all())


async def _logger(request: web.Request) -> web.Response:
    name = request.match_info["logger"]
    found = request.app[WORKER].levels.get(name)
    if found is None:
        raise NotFound(f"Logger {name} not found.")
    return answer(found)


async def _set_level(request: web.Request) -> web.Response:
    level = texts(await json_body(request)).get("level")
    if level is None:
        raise BadRequest("Desired 'level' parameter was not specified in request.")
    if not is_level(level):
        raise NotFound(f"invalid log level '{level}'.")
    name = request.match_info["logger"]
    if request.query.get("scope", "").lower() == "cluster":
        await request.app[WORKER].set_levels(name, level)
        return empty()
    return answer(request.app[WORKER].levels.set(name, level))
