"""Topics of the log that a process needs when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from waylog.kafka.clients import LogUnreachable, ensure_topics
from waylog.kafka.topics import Topic

_WAIT_S: Final = 60.0


async def await_topics(bootstrap_servers: str, topics: Sequence[Topic]) -> None:
    """Create what is missing as soon as the log answers. Raises LogUnreachable, KafkaException.

    The log is asked for a short time, again and again: a thread cannot be cancelled, and the end of
    a process that waits for its brokers would wait for it.
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
