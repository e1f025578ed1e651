"""Waits for the topics of the log that a process needs when it starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from waylog.kafka.clients import LogUnreachable, ensure_topics
from waylog.kafka.connection.security import configured_security
from waylog.kafka.reach import reach
from waylog.kafka.topics import Topic
from waylog.process.log_throttle import LogThrottle
from waylog.process.notify import notify

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.5


#: Called with the reason for which the log cannot be reached.
Waiting = Callable[[str], object]


def tell_nobody(_: str) -> None:
    """Tell nobody."""


class LogWait:
    """Tells why a start waits for the log: `waiting`, the log file and the supervisor hear it."""

    def __init__(self, waiting: Waiting = tell_nobody) -> None:
        self._waiting = waiting
        self._throttle = LogThrottle()

    def tell(self, error: LogUnreachable) -> None:
        """Tell why the last attempt has failed; call it on the event loop."""
        self._waiting(str(error))
        if self._throttle.count(asyncio.get_running_loop().time()) is not None:
            logger.warning("waiting for the log: %s", error)
            notify(f"STATUS=not ready: {error}")


async def await_topics(
    bootstrap_servers: str,
    topics: Sequence[Topic],
    waiting: Waiting = tell_nobody,
) -> None:
    """Create missing topics as soon as the log answers, whenever that is; raises KafkaException.

    Each attempt is short and repeated: a thread cannot be cancelled, and a process that is to end
    while it waits for its brokers would have to wait for the thread. Meanwhile the log file, the
    supervisor and `waiting` hear why the log cannot be reached.
    """
    security = configured_security()
    wait = LogWait(waiting)
    while True:
        why = await reach(bootstrap_servers, security)
        try:
            if why is not None:
                raise LogUnreachable(why)
            await asyncio.to_thread(ensure_topics, bootstrap_servers, topics, timeout_s=0.0)
        except LogUnreachable as error:
            wait.tell(error)
            await asyncio.sleep(_PAUSE_S)
        else:
            return
