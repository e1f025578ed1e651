"""Whether values of the log are sealed, and what opens them: the part that costs nothing when not.

What sealing is stands in waylog.value_encryption, and is loaded only where a master key is set.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from waylog.kafka import DeliveryCallback, Headers, RecordHeaders, RecordPosition
from waylog.topics import ADDRESS, ERROR, EVENT, LOCATION, PLACE, PLACE_EDIT

if TYPE_CHECKING:
    from confluent_kafka import Message

    from waylog.value_keys import KeyRing

#: Names the file of the master key, for all processes of the platform; without it nothing is
#: sealed.
ENVIRONMENT: Final = "WAYLOG_MASTER_KEY"

#: Topics whose values say where somebody was.
SEALED_TOPICS: Final = frozenset({LOCATION, ADDRESS, EVENT, ERROR, PLACE, PLACE_EDIT})

#: How a sealed value begins; neither JSON nor Avro with a schema's id does.
MAGIC: Final = b"\xe1\x01"

Opened = Callable[[Sequence["Message"]], "list[Message]"]


def is_sealed(value: bytes | None) -> bool:
    """Whether a value is one of ours that needs a key."""
    return value is not None and value.startswith(MAGIC)


@lru_cache(maxsize=4)
def shared_key_ring(bootstrap_servers: str) -> KeyRing | None:
    """The one key ring of this process for a log; None when values are not sealed.

    Raises ConfigError, LogUnreachable.
    """
    if not os.environ.get(ENVIRONMENT):
        return None
    from waylog.value_encryption import load_master_key
    from waylog.value_keys import KeyRing

    ring = KeyRing(bootstrap_servers, load_master_key(Path(os.environ[ENVIRONMENT])))
    # Its thread must not be in librdkafka while the interpreter is taken apart.
    atexit.register(ring.close)
    return ring


def opener(bootstrap_servers: str) -> Opened | None:
    """What opens the values of messages; None when values are not sealed. Raises as above."""
    ring = shared_key_ring(bootstrap_servers)
    return None if ring is None else ring.open_messages


class LogProducer(Protocol):
    """What waylog.kafka.Producer offers."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None: ...

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordPosition]: ...

    def __len__(self) -> int: ...

    @property
    def fatal(self) -> str | None: ...

    async def close(self, timeout_s: float = 10.0) -> int: ...


def sealed_if_configured(
    producer: LogProducer, bootstrap_servers: str, loop: asyncio.AbstractEventLoop
) -> LogProducer:
    """The producer itself, unless the environment names a master key.

    Waits until all keys are known: a device that has one needs no other. Raises ConfigError,
    LogUnreachable.
    """
    ring = shared_key_ring(bootstrap_servers)
    if ring is None:
        return producer
    ring.catch_up()
    from waylog.sealed_log import SealedLog

    return SealedLog(producer, ring, loop)
