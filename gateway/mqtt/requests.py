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
    """Questions that have not been answered yet; `send(kind, number, ...)` asks."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        #: Takers of answers that nobody waits for any more.
        self._late: dict[int, Callable[[Any], object]] = {}
        self._number = 0

    async def ask(
        self, kind: str, *arguments: Any, late: Callable[[Any], object] | None = None
    ) -> Any:
        """The answer; raises RelayUnavailable.

        `late` takes an answer that comes after the time for it, or after the asker was cancelled;
        None where it will never come.
        """
        if len(self._waiting) + len(self._late) >= _REQUESTS_MAX:
            raise RelayUnavailable
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._send(kind, number, *arguments)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await future
        except (TimeoutError, asyncio.CancelledError) as error:
            if late is not None:
                self._late[number] = late
            if isinstance(error, TimeoutError):
                raise AnswerLate from error
            raise
        finally:
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: Any) -> None:
        """An answer has come; nobody may wait for it any more."""
        late = self._late.pop(number, None)
        if late is not None:
            late(answer)
            return
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self) -> None:
        """No answers will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RelayUnavailable())
        late, self._late = self._late, {}
        for take in late.values():
            take(None)
