"""The paths that only other workers ask for (KIP-507)."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from consumers.connect.distributed.distributed_worker import DistributedWorker
from consumers.connect.herder.requests import UnreadableBody
from consumers.connect.rest.bodies import empty
from waylog.malformed import MALFORMED

WORKER: Final = web.AppKey("distributed worker", DistributedWorker)
_decode_tasks: Final = msgspec.json.Decoder(list[dict[str, str | None]]).decode


def routes() -> list[web.RouteDef]:
    """Return the routes."""
    return [
        web.post("/connectors/{connector}/tasks", _put_tasks),
        web.put("/connectors/{connector}/fence", _fence),
    ]


async def _put_tasks(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], request.match_info["connector"]
    body = await request.read()
    try:
        tasks = [
            {name: text for name, text in each.items() if text is not None}
            for each in _decode_tasks(body)
        ]
    except MALFORMED as error:
        raise UnreadableBody(str(error)) from error
    worker.check_internal(request.headers, body)
    await worker.run(connector, worker.herder.put_tasks(connector, tasks))
    return empty()


async def _fence(request: web.Request) -> web.Response:
    worker, connector = request.app[WORKER], request.match_info["connector"]
    worker.check_internal(request.headers, await request.read())
    await worker.run(connector, worker.herder.fence(connector))
    return empty()
