"""Drives operations of the herder: one after the other for a connector, as the effects come."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.effects import Effect, Operation
from consumers.connect.herder.refusals import Refused
from waylog.process.background import TaskSet

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: Seconds after which a request is answered although its operation goes on, as in Kafka.
REQUEST_S: Final = 90.0


class TimedOut(Refused):
    """An operation takes longer than a request may; it goes on."""


class OperationDriver:
    """Runs operations. All methods are called on the event loop."""

    def __init__(self, carry_out: Callable[[Effect], Awaitable[Any]]) -> None:
        """`carry_out` carries an effect out, and returns its result or raises."""
        self._carry_out: Final = carry_out
        self._locks: Final[weakref.WeakValueDictionary[str, asyncio.Lock]] = (
            weakref.WeakValueDictionary()
        )
        self._background: Final = TaskSet("operation of a connector")

    async def run(self, connector: str, operation: Operation[T]) -> T:
        """Run an operation about a connector when earlier ones have ended; return its result.

        Raises what the operation raises, and TimedOut; then the operation goes on.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._background.start(self._settle(connector, operation, result))
        try:
            async with asyncio.timeout(REQUEST_S):
                return await asyncio.shield(result)
        except TimeoutError:
            raise TimedOut("Request timed out") from None

    def run_later(self, connector: str, operation: Operation[Any]) -> asyncio.Task[None]:
        """Run an operation in the background; its errors are logged."""
        return self._background.start(self._logged(connector, operation))

    async def close(self, timeout_s: float) -> None:
        """Wait for operations that are under way; those that hang are left alone."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._background.wait()
        except TimeoutError:
            await self._background.close()

    async def _settle(
        self, connector: str, operation: Operation[T], result: asyncio.Future[T]
    ) -> None:
        try:
            value = await self._drive(connector, operation)
        except Exception as error:
            result.set_exception(error)
            result.exception()  # whoever has asked may have gone
        except BaseException:
            result.cancel()
            raise
        else:
            result.set_result(value)

    async def _logged(self, connector: str, operation: Operation[Any]) -> None:
        try:
            await self._drive(connector, operation)
        except ConnectException as error:
            logger.error("connector %s: %s", connector, error)

    async def _drive(self, connector: str, operation: Operation[T]) -> T:
        lock = self._locks.setdefault(connector, asyncio.Lock())
        async with lock:
            try:
                effect = next(operation)
                while True:
                    try:
                        answer = await self._carry_out(effect)
                    except Exception as error:
                        effect = operation.throw(error)
                    else:
                        effect = operation.send(answer)
            except StopIteration as stop:
                value: T = stop.value
                return value
