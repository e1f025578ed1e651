"""Waits until this broker knows of partitions that the controller has decided on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker_core.server.partitions.topics import TopicRegistry

#: Seconds in which an image brings what has been decided on; what somebody has deleted or refused
#: meanwhile may never come.
_IMAGE_S: Final = 1.0


@dataclass(eq=False)
class _Waiter:
    """Somebody who goes on when topics have as many partitions here."""

    missing: dict[str, int]
    #: Time of the event loop until which somebody waits in all.
    until: float
    then: Callable[[float], None]
    timer: asyncio.TimerHandle | None = None


class ExpectedTopics:
    """Who waits for topics that an image is going to bring.

    All methods are called on the event loop's thread.
    """

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._waiters: list[_Waiter] = []

    def when_known(
        self, counts: Mapping[str, int], timeout_s: float, then: Callable[[float], None]
    ) -> None:
        """Call `then` when each topic has at least this many partitions here, or after a second.

        It gets the seconds that are left until the timeout, which may be sooner.
        """
        waiter = _Waiter(dict(counts), self._loop.time() + timeout_s, then)
        self._waiters.append(waiter)
        if not self._knows_all(waiter):
            wait_s = min(max(timeout_s, 0.0), _IMAGE_S)
            waiter.timer = self._loop.call_later(wait_s, self._go_on, waiter)
        else:
            self._go_on(waiter)

    def image_applied(self) -> None:
        """Let those go on, after all others have applied the image, who waited for it."""
        if self._waiters:
            self._loop.call_soon(self._check)

    def close(self) -> None:
        """Let all go on."""
        for waiter in tuple(self._waiters):
            self._go_on(waiter)

    def _check(self) -> None:
        for waiter in tuple(self._waiters):
            if self._knows_all(waiter):
                self._go_on(waiter)

    def _knows_all(self, waiter: _Waiter) -> bool:
        for name in tuple(waiter.missing):
            topic = self._topics.get(name)
            if topic is not None and topic.partition_count >= waiter.missing[name]:
                del waiter.missing[name]
        return not waiter.missing

    def _go_on(self, waiter: _Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._waiters.remove(waiter)
        waiter.then(max(waiter.until - self._loop.time(), 0.0))
