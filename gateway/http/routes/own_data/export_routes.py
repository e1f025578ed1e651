"""`/v1/export`: users take out a device's fixes, or all that the platform has of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final

from aiohttp import web

from gateway.exports.exports import ExportFailed, Exports
from gateway.exports.questions import FORMATS, ExportQuestion, plain_name
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.past import LATEST_MS, time_of
from gateway.http.requests.responses import Refused, unavailable
from gateway.http.requests.services import Services
from gateway.http.routes.own_data.account_documents import account_documents, places_of
from gateway.limits.bounds import HttpLimits
from gateway.users.database import DEVICE_NAME
from waylog.network.connection_ends import reset
from waylog.network.shares import ShareExceeded

_PATH: Final = "/v1/export"
_REASONS: Final = Reasons(
    "exports are for users who have signed in",
    "a token of one device cannot take out its user's data",
    "only users of this platform have data here",
)
_ZIP: Final = "application/zip"


class ExportRoutes:
    """The handler of `/v1/export`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._exports: Exports = services.exports

    def routes(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.get(_PATH, self._export, allow_head=False)]

    async def _export(self, request: web.Request) -> web.StreamResponse:
        identity = await own_user(request, self._services, _REASONS)
        user = identity.user
        name = request.query.get("format", "geojson")
        if name not in FORMATS:
            raise Refused(400, f"format must be one of {', '.join(FORMATS)}")
        asked = [_device(text, user) for text in request.query.getall("device", ())]
        devices = list(dict.fromkeys(asked))
        question = ExportQuestion(
            user=user,
            devices=devices,
            format=name,
            from_ms=time_of(request, "from", -LATEST_MS),
            to_ms=time_of(request, "to", LATEST_MS),
        )
        if question.from_ms > question.to_ms:
            raise Refused(400, "from is after to")
        media_type, suffix = FORMATS[name]
        title = devices[0] if len(devices) == 1 else user
        if not devices:
            question.is_everything = True
            media_type, suffix = _ZIP, "zip"
        file_name = f"{plain_name(title)}.{suffix}"
        answer = web.StreamResponse(
            headers={
                "Content-Type": media_type,
                "Content-Disposition": f'attachment; filename="{file_name}"',
                "X-Accel-Buffering": "no",
            }
        )
        try:
            async with self._exports.turns.turn(user):
                if question.is_everything:
                    await self._add_documents(question)
                return await self._send(request, answer, question)
        except ShareExceeded:
            raise Refused(
                429, "an export of yours is being made already", {"Retry-After": "30"}
            ) from None

    async def _add_documents(self, question: ExportQuestion) -> None:
        """Add the user's devices and all that is no fix. Raises Refused."""
        services, user = self._services, question.user
        question.devices = self._devices_of(user)
        question.documents = await account_documents(services, user)
        question.places = await places_of(services, question.devices)

    async def _send(
        self, request: web.Request, answer: web.StreamResponse, question: ExportQuestion
    ) -> web.StreamResponse:
        view = self._services.location_view
        recent = [view.track_pieces(device) for device in question.devices]
        async with aclosing(self._exports.made(question, recent)) as pieces:
            try:
                # An error before the first byte has an answer of its own.
                first = await anext(pieces, b"")
            except (ExportFailed, OSError) as error:
                raise unavailable(str(error)) from error
            try:
                await answer.prepare(request)
                pace = _Pace(self._services.limits)
                async for piece in _with(first, pieces):
                    async with pace.kept(len(piece)):
                        await answer.write(piece)
                    await self._services.turns.let_others_work(question.user)
                await answer.write_eof()
            except (ExportFailed, TimeoutError):
                # The client must not take it for whole.
                if request.transport is not None:
                    reset(request.transport)
            except ConnectionError:
                pass
        return answer

    def _devices_of(self, user: str) -> list[str]:
        views = (self._services.location_view, self._services.address_view)
        return sorted({name for view in views for name in view.devices_after("", user)})


class _Pace:
    """The time that a client may take for what it is sent: each byte that it takes gives it more.

    An export has one of few places, and a process, until its client has taken all of it.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._left_s = limits.export_patience_s
        self._s_a_byte = 1 / limits.export_bytes_per_s_min

    @asynccontextmanager
    async def kept(self, size: int) -> AsyncIterator[None]:
        """Raise TimeoutError if the client takes too long for so many bytes."""
        begun = time.monotonic()
        async with asyncio.timeout(self._left_s):
            yield
        self._left_s += size * self._s_a_byte - (time.monotonic() - begun)


async def _with(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in pieces:
        yield piece


def _device(text: str, user: str) -> str:
    name = text.removeprefix(f"{user}/")
    if DEVICE_NAME.fullmatch(name) is None:
        raise Refused(400, f"{text[:200]!r} is not a device of yours")
    return f"{user}/{name}"
