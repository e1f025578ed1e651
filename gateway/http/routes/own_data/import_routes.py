"""`/v1/imports`: users upload files of tracks, which become fixes of a device of theirs.

A file comes in parts, each a request within the usual limits, and goes on where it ended: no size
of a file holds anything in memory, and no connection has to last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from aiohttp import web

from gateway.http.ingest.ingest import Ingest, check_may_send
from gateway.http.requests.own_users import Reasons, own_user
from gateway.http.requests.responses import COMMAND_BYTES_MAX, Refused, json_answer
from gateway.http.requests.services import Services
from gateway.http.routes.bodies import asked_of
from gateway.imports.import_store import FILES_MAX, ImportRefused, WrongOffset
from gateway.imports.imports import Imports
from gateway.imports.records import Import, ImportedFile, shown
from gateway.users.auth import Identity
from waylog.os_errors import describe_os_error

_PATH: Final = "/v1/imports"
_ONE: Final = f"{_PATH}/{{import}}"
#: Where a part of a file begins, in bytes.
OFFSET: Final = "Upload-Offset"
_OFFSET_DIGITS_MAX: Final = 18
#: Bytes of a request that names all the files of an import.
_NAMES_BYTES_MAX: Final = 8 * COMMAND_BYTES_MAX

_REASONS: Final = Reasons(
    "imports are for users who have signed in",
    "a token of one device cannot import files",
    "only users of this platform can import files",
)

_Result = TypeVar("_Result")


class _AskedFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    files: Annotated[list[_AskedFile], msgspec.Meta(min_length=1, max_length=FILES_MAX)]
    device: str | None = None


class ImportRoutes:
    """The handlers of `/v1/imports`."""

    def __init__(self, services: Services, ingest: Ingest) -> None:
        self._services = services
        self._ingest = ingest

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of a user's imports."""
        return [
            web.get(_PATH, self._list, allow_head=False),
            web.post(_PATH, self._create),
            web.get(_ONE, self._show, allow_head=False),
            web.patch(f"{_ONE}/files/{{number}}", self._append),
            web.post(f"{_ONE}/run", self._run),
            web.delete(_ONE, self._remove),
        ]

    async def _user(self, request: web.Request) -> tuple[Identity, Imports]:
        identity = await own_user(request, self._services, _REASONS)
        imports = self._services.imports
        if imports is None:
            raise Refused(404, "this platform takes no imports (--import-bytes-max)")
        return identity, imports

    async def _sender(self, request: web.Request) -> tuple[Identity, Imports]:
        identity, imports = await self._user(request)
        check_may_send(identity)
        return identity, imports

    async def _found(self, request: web.Request, identity: Identity, imports: Imports) -> Import:
        found = await asyncio.to_thread(
            imports.store.find, identity.user, request.match_info["import"]
        )
        if found is None:
            raise Refused(404, "you have no such import")
        return found

    async def _list(self, request: web.Request) -> web.Response:
        identity, imports = await self._user(request)

        def listed() -> list[dict[str, Any]]:
            store = imports.store
            return [shown(each, store.received(each)) for each in store.of_user(identity.user)]

        return json_answer(await asyncio.to_thread(listed))

    async def _show(self, request: web.Request) -> web.Response:
        identity, imports = await self._user(request)
        return await self._told(await self._found(request, identity, imports), imports)

    async def _create(self, request: web.Request) -> web.Response:
        identity, imports = await self._sender(request)
        asked = await asked_of(
            *(request, self._ingest, _Asked, "not an import"),
            sender=identity,
            bytes_max=_NAMES_BYTES_MAX,
        )
        files = [ImportedFile(name=each.name, bytes=each.bytes) for each in asked.files]
        found = await _done(imports.create(identity.user, asked.device, files))
        return await self._told(found, imports, 201)

    async def _append(self, request: web.Request) -> web.Response:
        identity, imports = await self._sender(request)
        found = await self._found(request, identity, imports)
        number = request.match_info["number"]
        if not number.isdecimal() or len(number) > 4 or int(number) >= len(found.files):
            raise Refused(404, "this import has no such file")
        if found.state != "uploading":
            raise Refused(409, f"the files of this import are uploaded: it is {found.state}")
        offset = _offset_of(request)
        body = await self._ingest.receive_body(request, identity)
        try:
            received = await _done(
                asyncio.to_thread(
                    imports.store.append, found, int(number), offset, list(body.slices())
                )
            )
        except WrongOffset as error:
            headers = {OFFSET: str(error.received)}
            raise Refused(409, f"{error}: go on there", headers) from None
        answer = json_answer({"received": received})
        answer.headers[OFFSET] = str(received)
        return answer

    async def _run(self, request: web.Request) -> web.Response:
        identity, imports = await self._sender(request)
        found = await self._found(request, identity, imports)
        await _done(imports.start(found, identity))
        return await self._told(found, imports, 202)

    async def _remove(self, request: web.Request) -> web.Response:
        identity, imports = await self._user(request)
        found = await self._found(request, identity, imports)
        fixes = request.query.get("fixes", "erase")
        if fixes not in ("erase", "keep"):
            raise Refused(400, "fixes must be erase or keep")
        await _done(imports.take_off(found) if fixes == "keep" else imports.undo(found))
        return web.Response(status=204)

    async def _told(self, found: Import, imports: Imports, status: int = 200) -> web.Response:
        received = await asyncio.to_thread(imports.store.received, found)
        return json_answer(shown(found, received), status)


async def _done(work: Awaitable[_Result]) -> _Result:
    """Return what work returns. Raises Refused."""
    try:
        return await work
    except ImportRefused as error:
        headers = {"Retry-After": "5"} if error.status == 503 else None
        raise Refused(error.status, str(error), headers) from error
    except FileNotFoundError as error:
        raise Refused(404, "you have no such import") from error
    except OSError as error:
        reason = f"the files cannot be kept now: {describe_os_error(error)}"
        raise Refused(507, reason) from error


def _offset_of(request: web.Request) -> int:
    text = request.headers.get(OFFSET, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS_MAX):
        raise Refused(400, f"{OFFSET} must say where in the file these bytes begin")
    return int(text)
