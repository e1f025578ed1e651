"""HTTP answers: JSON, and every refusal explained in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from gateway.bodies.parts import Body

_encode = msgspec.json.Encoder().encode


#: A request that holds no fixes: names, keys, settings.
COMMAND_BYTES_MAX: Final = 64 * 1024

_TOGETHER_BYTES_MAX: Final = 128 * 1024
_WRITTEN_AT_ONCE: Final = 64 * 1024


class Refused(Exception):
    """A request that is answered with an error; `reason` is for the person who sent it."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


def unauthorized(reason: str) -> Refused:
    """401 with the challenge that makes a browser ask."""
    return Refused(401, reason, {"WWW-Authenticate": 'Basic realm="waylog", charset="UTF-8"'})


def unavailable(reason: str) -> Refused:
    """503: every app keeps what it has sent and repeats it."""
    return Refused(503, reason, {"Retry-After": "2"})


def json_answer(value: Any, status: int = 200) -> web.Response:
    """Any value as JSON."""
    return raw_json_answer(_encode(value), status)


def raw_json_answer(body: bytes | Sequence[bytes], status: int = 200) -> web.Response:
    """JSON that is encoded already, perhaps in pieces."""
    return web.Response(
        body=body if isinstance(body, bytes) else in_pieces(body),
        status=status,
        content_type="application/json",
    )


def in_pieces(pieces: Sequence[bytes]) -> bytes | Payload:
    """The body of a request or of an answer: together where they are small."""
    size = sum(map(len, pieces))
    return b"".join(pieces) if size <= _TOGETHER_BYTES_MAX else _Pieces(Body(*pieces))


class _Pieces(Payload):
    """Pieces that are written one after the other, as fast as the other side takes them.

    To put some MiB together, and to copy them into a buffer, takes longer than others should wait.
    """

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        self._body = body
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole text."""
        return bytes(self._body).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write them, and let others have their turn in between."""
        part: list[bytes | memoryview] = []
        size = 0
        for piece in self._body.slices():
            part.append(piece)
            size += len(piece)
            if size >= _WRITTEN_AT_ONCE:
                await writer.write(b"".join(part))
                await asyncio.sleep(0)
                part, size = [], 0
        if part:
            await writer.write(b"".join(part))


def refusal_answer(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    """`{"error": reason}`."""
    return web.Response(
        # A reason may quote what was sent.
        body=_encode({"error": reason.encode(errors="replace").decode()}),
        status=status,
        content_type="application/json",
        headers=headers,
    )
