"""HTTP responses: JSON, and every refusal with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from gateway.bodies.parts import Body
from waylog.network.large_answers import SMALL_BYTES_MAX

_encode = msgspec.json.Encoder().encode


#: Bytes of a request body that holds no fixes: names, keys, settings.
COMMAND_BYTES_MAX: Final = 64 * 1024

_WRITTEN_AT_ONCE: Final = 64 * 1024


class Refused(Exception):
    """A request that is answered with an error; `reason` is shown to the sender.

    By `code` a program that speaks another language than `reason` knows what is the matter.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        headers: dict[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers
        self.code = code


def too_large_head(bytes_max: int) -> str:
    """Return the reason of a refusal with 431."""
    return f"the headers of the request have more than {bytes_max} bytes"


def unauthorized(reason: str) -> Refused:
    """Return a refusal with 401 and the challenge that makes a browser ask for credentials."""
    return Refused(401, reason, {"WWW-Authenticate": 'Basic realm="waylog", charset="UTF-8"'})


def unavailable(reason: str) -> Refused:
    """Return a refusal with 503, after which every app keeps the request and repeats it."""
    return Refused(503, reason, {"Retry-After": "2"})


def json_answer(value: Any, status: int = 200) -> web.Response:
    """Return a response with any value as JSON."""
    return raw_json_answer(_encode(value), status)


def raw_json_answer(body: bytes | Sequence[bytes], status: int = 200) -> web.Response:
    """Return a response with encoded JSON, possibly in pieces."""
    return web.Response(
        body=body if isinstance(body, bytes) else in_pieces(body),
        status=status,
        content_type="application/json",
    )


def in_pieces(pieces: Sequence[bytes]) -> bytes | Payload:
    """Return the body of a request or response; small bodies are joined."""
    size = sum(map(len, pieces))
    return b"".join(pieces) if size <= SMALL_BYTES_MAX else Pieces(Body(*pieces))


class Pieces(Payload):
    """A payload whose pieces are written one after another, as fast as the peer reads them.

    Joining several MiB, and copying them into a buffer, would block the event loop for too long.
    """

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        self.parts = body
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the whole text."""
        return bytes(self.parts).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the pieces, and yield to the event loop in between."""
        part: list[bytes | memoryview] = []
        size = 0
        for piece in self.parts.slices():
            part.append(piece)
            size += len(piece)
            if size >= _WRITTEN_AT_ONCE:
                await writer.write(b"".join(part))
                await asyncio.sleep(0)
                part, size = [], 0
        if part:
            await writer.write(b"".join(part))


def refusal_answer(
    status: int, reason: str, headers: dict[str, str] | None = None, code: str | None = None
) -> web.Response:
    """Return a response with `{"error": reason}`, and `code` if there is one."""
    # A reason may quote the request, with lone surrogates.
    said = {"error": reason.encode(errors="replace").decode()}
    return web.Response(
        body=_encode(said if code is None else said | {"code": code}),
        status=status,
        content_type="application/json",
        headers=headers,
    )
