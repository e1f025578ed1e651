"""Bodies of small commands about accounts and users."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused
from gateway.users.auth import Identity
from waylog.malformed import MALFORMED

Asked = TypeVar("Asked", bound=msgspec.Struct)


async def asked_of(
    request: web.Request,
    ingest: Ingest,
    kind: type[Asked],
    refusal: str = "not understood",
    *,
    sender: Identity | None = None,
    bytes_max: int = COMMAND_BYTES_MAX,
) -> Asked:
    """Return what a body asks for; an empty one is an empty object. Raises Refused."""
    try:
        body = await ingest.read_body(request, sender, bytes_max)
        return msgspec.json.decode(body or b"{}", type=kind)
    except MALFORMED as error:
        raise Refused(400, f"{refusal}: {error}") from error
