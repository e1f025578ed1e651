"""Erased devices, as topic `erasure` holds them; every writer and reader honours its records.

A record erases everything of a device that was sent or received up to a time. The topic is
compacted and keeps the newest record of each device for good. So it is still known when the log is
read again, when a phone sends an old fix, and when a job comes back that was away.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from confluent_kafka import Message

from waylog.kafka.clients import ensure_topics
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topic_follower import TopicFollower
from waylog.kafka.topics import ERASURE, TOPICS
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_SILENCE_MAX_S: Final = 60.0


class Erasure(msgspec.Struct, frozen=True):
    """A record of topic `erasure`, whose key is the device."""

    device: str
    # ms, in 64 bits as in files; everything that was sent or received until then is erased
    before: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Erasures:
    """The known erasures: the time of the newest one of each device."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        #: How often something new has come.
        self.changes = 0

    def __len__(self) -> int:
        return len(self._before)

    def __contains__(self, device: str) -> bool:
        return device in self._before

    def take(self, value: bytes | None) -> Erasure | None:
        """Take the value of a record; return its erasure if that is new, else None."""
        if value is None:
            return None
        try:
            erasure = msgspec.json.decode(value, type=Erasure)
        except MALFORMED:
            logger.warning("a record of topic %s is no erasure of ours", ERASURE)
            return None
        return erasure if self.add(erasure) else None

    def add(self, erasure: Erasure) -> bool:
        """Remember an erasure; return whether it is new."""
        if erasure.before <= self._before.get(erasure.device, -1):
            return False
        self._before[erasure.device] = erasure.before
        self.changes += 1
        return True

    def covers(self, device: str, *times_ms: int) -> bool:
        """Return whether a device was erased at or after any of these times (ms)."""
        before = self._before.get(device)
        return before is not None and any(time_ms <= before for time_ms in times_ms)

    def known(self) -> dict[str, int]:
        """Return all erasures, as the time in ms by device."""
        return dict(self._before)


class ErasureLog:
    """Follows the topic in a thread; `erasures` is up to date within a second.

    `on_erasure` is called in that thread with each new erasure, including those that the topic
    already held, and again until it succeeds. The log of an earlier version has no such topic:
    nothing was erased yet.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        on_erasure: Callable[[Erasure], object] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """`properties` are librdkafka's, for a log that wants others than all clients have."""
        self.erasures = Erasures()
        self._on_erasure = on_erasure
        self._untold: deque[Erasure] = deque()
        self._follower = TopicFollower(
            bootstrap_servers,
            ERASURE,
            self._take,
            client_id="waylog-erasures",
            may_be_missing=True,
            properties=properties,
        )

    def wait(
        self,
        timeout_s: float = _SILENCE_MAX_S,
        *,
        stopping: threading.Event | None = None,
        alive: Callable[[], object] = lambda: None,
    ) -> bool:
        """Wait until the topic was read once; return False if `stopping` or `close` comes first.

        Calls `alive` from time to time. Raises LogForbidden as soon as a right turns out to be
        missing, LogUnreachable after `timeout_s`.
        """
        return self._follower.wait(timeout_s, stopping=stopping, alive=alive)

    def close(self) -> None:
        """Stop following the topic."""
        self._follower.close()

    def _take(self, message: Message) -> None:
        erasure = self.erasures.take(message.value())
        if self._on_erasure is None:
            return
        if erasure is not None:
            self._untold.append(erasure)
        while self._untold:
            self._on_erasure(self._untold[0])
            self._untold.popleft()


def append_erasures(bootstrap_servers: str, devices: Iterable[str], before_ms: int) -> None:
    """Write that devices are erased up to a time; raises LogUnreachable."""
    own = [topic for topic in TOPICS if topic.name == ERASURE]
    ensure_topics(bootstrap_servers, own, timeout_s=10.0)
    records = [
        (ERASURE, device.encode(), msgspec.json.encode(Erasure(device, before_ms)))
        for device in devices
    ]
    append_records(bootstrap_servers, records, "an erasure", client_id="waylog-erase")


def read_erasures(bootstrap_servers: str) -> Erasures:
    """Read the erasures that the log has now; raises LogUnreachable."""
    erasures = Erasures()
    for message in read_topic(bootstrap_servers, ERASURE):
        erasures.take(message.value())
    return erasures
