"""Questions to another process and their answers, by number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

_ANSWER_S: Final = 5.0
_REQUESTS_MAX: Final = 10_000


class RelayUnavailable(Exception):
    """The gateway with the views does not answer now."""


class AnswerLate(RelayUnavailable):
    """It may answer yet, but nobody waits any more."""


class Requests:
    """What has been asked and not been answered yet; `send(kind, number, ...)` asks."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    async def ask(self, kind: str, *arguments: Any) -> Any:
        """The answer; raises RelayUnavailable."""
        if len(self._waiting) >= _REQUESTS_MAX:
            raise RelayUnavailable
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._send(kind, number, *arguments)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await future
        except TimeoutError as error:
            raise AnswerLate from error
        finally:
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: Any) -> None:
        """An answer has come; nobody may wait for it any more."""
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self) -> None:
        """No answers will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RelayUnavailable())
