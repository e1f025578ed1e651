"""Waits until this broker knows of partitions that the controller has decided on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.server.partitions.topic_waiters import TopicWaiters
from broker_core.server.partitions.topics import TopicRegistry

#: Seconds in which an image brings what has been decided on; what somebody has deleted or refused
#: meanwhile may never come.
_IMAGE_S: Final = 1.0


class ExpectedTopics:
    """The topics that an image is going to bring, and those who wait for them.

    All methods are called on the event loop's thread.
    """

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._waiters = TopicWaiters()

    def when_known(
        self, counts: Mapping[str, int], timeout_s: float, then: Callable[[float], None]
    ) -> None:
        """Call `then` when each topic has at least this many partitions here, or after a second.

        It gets the seconds that are left until the timeout, which may be sooner.
        """
        until = self._loop.time() + timeout_s
        self._waiters.wait(
            counts,
            min(timeout_s, _IMAGE_S),
            lambda: then(max(until - self._loop.time(), 0.0)),
        )
        self._check()

    def image_applied(self) -> None:
        """Let those go on, after all others have applied the image, who waited for it."""
        if self._waiters:
            self._loop.call_soon(self._check)

    def close(self) -> None:
        """Let all go on."""
        self._waiters.close()

    def _check(self) -> None:
        self._waiters.check(self._is_known)

    def _is_known(self, name: str, count: int) -> bool:
        topic = self._topics.get(name)
        return topic is not None and topic.partition_count >= count
