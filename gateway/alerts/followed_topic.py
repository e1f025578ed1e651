"""Reads a topic to its end, and follows it from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from waylog.config import ConfigError
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import LogUnreachable
from waylog.sealing.sealing import repeated_opener

#: Seconds within which the log has to answer.
ANSWER_S: Final = 10.0


async def follow(
    bootstrap_servers: str,
    client_id: str,
    topic: str,
    on_records: Callable[[Sequence[Any]], None],
    starts: Mapping[int, int] | None = None,
) -> BatchReader:
    """Return a reader that has come to the end; the caller closes it.

    `starts` are the offsets to begin at, by partition; None: the first ones. Raises LogUnreachable;
    `on_records` may have got something then.
    """
    caught_up = asyncio.Event()
    try:
        opened = repeated_opener(bootstrap_servers)
    except ConfigError as error:
        raise LogUnreachable(str(error)) from error
    reader = BatchReader(
        bootstrap_servers,
        client_id,
        topic,
        asyncio.get_running_loop(),
        on_records=on_records,
        on_caught_up=caught_up.set,
        starts=starts,
        opened=opened,
    )
    reader.start()
    try:
        async with asyncio.timeout(ANSWER_S):
            await caught_up.wait()
    except BaseException as error:
        await reader.close()
        if isinstance(error, TimeoutError):
            raise LogUnreachable(f"topic {topic} does not answer in time") from error
        raise
    return reader
