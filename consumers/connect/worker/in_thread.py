"""Runs what blocks, or is a plugin's, in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from consumers.connect.data.exceptions import ConnectException
from waylog.process.threads import start_thread

T = TypeVar("T")
#: A plugin that hangs must not keep others, and requests to delete its connector, waiting.
ANSWER_S: Final = 60.0


def settle(future: Future[T], work: Callable[[], T]) -> None:
    """Do the work, and give the future what it returns or raises, SystemExit too."""
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error if isinstance(error, Exception) else _wrapped(error))
    else:
        future.set_result(result)


def running_future() -> Future[T]:
    """Return a future that nobody can cancel: its work is under way."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future


async def in_thread(work: Callable[[], T], name: str) -> T:
    """Return what the work returns; raises what it raises, ConnectException if that takes too long.

    A thread that hangs does not keep the process from ending.
    """
    future: Future[T] = running_future()
    start_thread(lambda: settle(future, work), name, may_end=lambda: True)
    return await answer_of(future, name)


async def answer_of(future: Future[T], name: str) -> T:
    """Return the result of a future; ConnectException if that takes too long."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        text = f"{name} has not been done within {ANSWER_S:.0f} s; it may go on"
        raise ConnectException(text) from None


def _wrapped(error: BaseException) -> ConnectException:
    wrapped = ConnectException(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
