"""An HTTP client for tests that read an answer's head and leave its body unread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse


@asynccontextmanager
async def http_session(
    url: str | None = None, **options: Any
) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session of aiohttp whose answers are closed with it.

    An answer and its body refer to each other. An answer that is dropped before its body has come
    is left to the garbage collector, which may warn about its connection during another test.
    """
    answers: list[ClientResponse] = []

    async def keep(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        answer = await handler(request)
        answers.append(answer)
        return answer

    async with aiohttp.ClientSession(url, middlewares=(keep,), **options) as session:
        try:
            yield session
        finally:
            for answer in answers:
                answer.close()
