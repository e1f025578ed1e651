"""Requests to another process, matched with their answers by number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

#: Seconds to wait for an answer.
_ANSWER_S: Final = 5.0
#: Requests that may be unanswered at a time.
_REQUESTS_MAX: Final = 10_000


class RelayUnavailable(Exception):
    """The gateway with the views does not answer."""


class AnswerLate(RelayUnavailable):
    """No answer came in time; it may still come."""


class Requests:
    """The requests that have not been answered yet; `send(kind, number, ...)` sends one."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        #: Handlers of answers whose askers no longer wait.
        self._late: dict[int, Callable[[Any], object]] = {}
        self._number = 0

    async def ask(
        self, kind: str, *arguments: Any, late: Callable[[Any], object] | None = None
    ) -> Any:
        """Send a request and return its answer; raises RelayUnavailable.

        `late` receives an answer that comes after the time-out, or after the asker was cancelled.
        It receives None if the answer will never come.
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
        """Deliver an answer to its asker, or to the `late` handler if the asker has gone."""
        late = self._late.pop(number, None)
        if late is not None:
            late(answer)
            return
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self) -> None:
        """Fail all requests, as no answers will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RelayUnavailable())
        late, self._late = self._late, {}
        for take in late.values():
            take(None)
