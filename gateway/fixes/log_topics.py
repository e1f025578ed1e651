"""Waits for the topics of the log that a process needs when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from waylog.kafka.clients import LogUnreachable, ensure_topics
from waylog.kafka.topics import Topic

#: Seconds to wait for the log.
_WAIT_S: Final = 60.0


async def await_topics(bootstrap_servers: str, topics: Sequence[Topic]) -> None:
    """Create missing topics as soon as the log answers; raises LogUnreachable, KafkaException.

    Each attempt is short and repeated: a thread cannot be cancelled, and a process that is to end
    while it waits for its brokers would have to wait for the thread.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _WAIT_S
    while True:
        try:
            await asyncio.to_thread(ensure_topics, bootstrap_servers, topics, timeout_s=0.0)
        except LogUnreachable:
            if loop.time() > deadline:
                raise
        else:
            return
