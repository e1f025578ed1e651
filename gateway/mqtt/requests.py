"""Requests to another process, matched with their answers by number.

A request is made for a client of a user. Of those that may be unanswered a user has a share, so
that nobody's clients keep the sessions and fixes of others from being asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from waylog.network.shares import Shares

#: Seconds to wait for an answer.
_ANSWER_S: Final = 5.0
#: Requests that may be unanswered at a time: of all, and of one user.
_REQUESTS_MAX: Final = 10_000
REQUESTS_EACH: Final = 2_500


class RelayUnavailable(Exception):
    """The gateway with the views does not answer."""


class AnswerLate(RelayUnavailable):
    """No answer came in time; it may still come."""


class ShareUsed(RelayUnavailable):
    """Too many requests of one user, or of all, are unanswered; this one has not been sent."""


class _Late(NamedTuple):
    """The handler of an answer whose asker no longer waits."""

    user: str
    take: Callable[[Any], object]


class Requests:
    """The requests that have not been answered yet; `send(kind, number, ...)` sends one."""

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._late: dict[int, _Late] = {}
        self._shares = Shares(_REQUESTS_MAX, REQUESTS_EACH)
        self._number = 0

    async def ask(
        self, kind: str, *arguments: Any, user: str, late: Callable[[Any], object] | None = None
    ) -> Any:
        """Send a request for a client of a user and return its answer; raises RelayUnavailable.

        `late` receives an answer that comes after the time-out, or after the asker was cancelled.
        It receives None if the answer will never come.
        """
        if not self._shares.take(user):
            raise ShareUsed
        self._number += 1
        number = self._number
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._send(kind, number, *arguments)
            async with asyncio.timeout(_ANSWER_S):
                return await future
        except (TimeoutError, asyncio.CancelledError) as error:
            if late is not None:
                if future.cancelled():
                    self._late[number] = _Late(user, late)
                else:  # the answer had just come
                    late(None if future.exception() else future.result())
            if isinstance(error, TimeoutError):
                raise AnswerLate from error
            raise
        finally:
            self._waiting.pop(number, None)
            if number not in self._late:
                self._shares.give_back(user)

    def answered(self, number: int, answer: Any) -> None:
        """Deliver an answer to its asker, or to the `late` handler if the asker has gone."""
        late = self._late.pop(number, None)
        if late is not None:
            self._shares.give_back(late.user)
            late.take(answer)
            return
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail(self) -> None:
        """Fail all requests, as no answers will come."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RelayUnavailable())
        gone, self._late = self._late, {}
        for late in gone.values():
            self._shares.give_back(late.user)
            late.take(None)
