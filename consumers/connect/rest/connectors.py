"""The paths below /connectors: what exists, what it does, and what it is to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from consumers.connect.herder.refusals import Forbidden, NotFound
from consumers.connect.herder.requests import create_request, named, offsets_request, texts
from consumers.connect.herder.restart_plan import RestartRequest
from consumers.connect.rest.bodies import answer, empty, flag, json_body
from consumers.connect.storage.states import TaskId
from consumers.connect.worker.connect_worker import ConnectWorker

logger = logging.getLogger(__name__)

WORKER: Final[web.AppKey[ConnectWorker]] = web.AppKey("worker")


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    one = "/connectors/{connector}"
    return [
        web.get("/connectors", _list),
        web.post("/connectors", _create),
        web.get(one, _info),
        web.delete(one, _delete),
        web.get(f"{one}/config", _config),
        web.put(f"{one}/config", _put_config),
        web.patch(f"{one}/config", _patch_config),
        web.get(f"{one}/status", _status),
        web.get(f"{one}/tasks", _tasks),
        web.get(f"{one}/tasks-config", _tasks_config),
        web.get(one + r"/tasks/{task:\d+}/status", _task_status),
        web.post(one + r"/tasks/{task:\d+}/restart", _restart_task),
        web.post(f"{one}/restart", _restart),
        web.put(f"{one}/pause", _pause),
        web.put(f"{one}/resume", _resume),
        web.put(f"{one}/stop", _stop),
        web.get(f"{one}/topics", _topics),
        web.put(f"{one}/topics/reset", _reset_topics),
        web.get(f"{one}/offsets", _offsets),
        web.patch(f"{one}/offsets", _alter_offsets),
        web.delete(f"{one}/offsets", _reset_offsets),
    ]


def _connector(request: web.Request) -> str:
    return request.match_info["connector"]


def _task(request: web.Request) -> TaskId:
    number = request.match_info["task"]
    # No connector has more tasks than a number of 32 bits can count.
    return TaskId(_connector(request), int(number) if len(number) < 10 else -1)


def _location(request: web.Request, connector: str) -> str:
    return f"{request.url.origin()}/connectors/{quote(connector, safe='')}"


async def _list(request: web.Request) -> web.Response:
    herder = request.app[WORKER].herder
    if "expand" not in request.query:
        return answer(herder.connectors())
    wanted = request.query.getall("expand")
    expanded: dict[str, Mapping[str, Any]] = {}
    for connector in herder.connectors():
        parts: dict[str, Any] = {}
        try:
            for each in wanted:
                if each == "status":
                    parts[each] = herder.state(connector)
                elif each == "info":
                    parts[each] = herder.info(connector)
                else:
                    logger.info("expansion %s is unknown and is ignored", each)
        except NotFound:
            continue
        expanded[connector] = parts
    return answer(expanded)


async def _create(request: web.Request) -> web.Response:
    worker = request.app[WORKER]
    wanted = create_request(await json_body(request))
    operation = worker.herder.put(wanted.name, wanted.config, wanted.target, may_replace=False)
    created = await worker.run(wanted.name, operation)
    return answer(created.info, 201, _location(request, wanted.name))


async def _info(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].herder.info(_connector(request)))


async def _delete(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    await worker.run(connector, worker.herder.delete(connector))
    return empty()


async def _config(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].herder.info(_connector(request)).config)


async def _put_config(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    config = named(connector, texts(await json_body(request)))
    created = await worker.run(connector, worker.herder.put(connector, config, may_replace=True))
    if created.is_new:
        return answer(created.info, 201, _location(request, connector))
    return answer(created.info)


async def _patch_config(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    patch = texts(await json_body(request))
    created = await worker.run(connector, worker.herder.patch(connector, patch))
    return answer(created.info)


async def _status(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].herder.state(_connector(request)))


async def _tasks(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].herder.tasks(_connector(request)))


async def _tasks_config(request: web.Request) -> web.Response:
    found = request.app[WORKER].herder.tasks(_connector(request))
    return answer({f"{each.id.connector}-{each.id.task}": each.config for each in found})


async def _task_status(request: web.Request) -> web.Response:
    return answer(request.app[WORKER].herder.task_state(_task(request)))


async def _restart_task(request: web.Request) -> web.Response:
    worker, task = request.app[WORKER], _task(request)
    await worker.run(task.connector, worker.herder.restart_task(task))
    return empty()


async def _restart(request: web.Request) -> web.Response:
    worker = request.app[WORKER]
    wanted = RestartRequest(
        _connector(request),
        only_failed=flag(request, "onlyFailed"),
        include_tasks=flag(request, "includeTasks"),
    )
    if wanted.is_plain:
        await worker.run(wanted.connector, worker.herder.restart(wanted.connector))
        return empty()
    state = await worker.run(wanted.connector, worker.herder.restart_parts(wanted))
    return answer(state, 202)


async def _pause(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    worker.herder.check_known(connector)
    await worker.accept(connector, worker.herder.pause(connector))
    return empty(202)


async def _resume(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    worker.herder.check_known(connector)
    await worker.accept(connector, worker.herder.resume(connector))
    return empty(202)


async def _stop(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    await worker.run(connector, worker.herder.stop(connector))
    return empty()


async def _topics(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    _check_tracking(worker)
    return answer({connector: worker.herder.topics(connector)})


async def _reset_topics(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    _check_tracking(worker)
    if not worker.settings.may_reset_topics:
        raise Forbidden("Topic tracking reset is disabled.")
    worker.reset_topics(connector)
    return empty(202)


def _check_tracking(worker: ConnectWorker) -> None:
    if not worker.settings.tracks_topics:
        raise Forbidden("Topic tracking is disabled.")


async def _offsets(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    return answer(await worker.run(connector, worker.herder.offsets(connector)))


async def _alter_offsets(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    offsets = offsets_request(await json_body(request))
    return answer(await worker.run(connector, worker.herder.alter_offsets(connector, offsets)))


async def _reset_offsets(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], _connector(request)
    return answer(await worker.run(connector, worker.herder.alter_offsets(connector, None)))
