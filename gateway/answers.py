"""HTTP answers: JSON, and every refusal explained in it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

_encode = msgspec.json.Encoder().encode


#: A request that holds no fixes: names, keys, settings.
COMMAND_BYTES_MAX: Final = 64 * 1024


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


def raw_json_answer(body: bytes, status: int = 200) -> web.Response:
    """JSON that is encoded already."""
    return web.Response(body=body, status=status, content_type="application/json")


def refusal_answer(status: int, reason: str, headers: dict[str, str] | None = None) -> web.Response:
    """`{"error": reason}`."""
    return web.Response(
        # A reason may quote what was sent.
        body=_encode({"error": reason.encode(errors="replace").decode()}),
        status=status,
        content_type="application/json",
        headers=headers,
    )
