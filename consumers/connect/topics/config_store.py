"""Configurations in a topic: `config.storage.topic` (`ConfigurationStore`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.storage.config_records import (
    Record,
    SessionKey,
    is_for_leaders,
    steps_of,
)
from consumers.connect.storage.config_topic import ConfigTopic, Notice
from consumers.connect.storage.configurations import Change, ClusterConfig, PutTasks
from consumers.connect.topics.leader_writer import LeaderWriter
from waylog.kafka.topic_log import TopicLog, TopicRecord

logger = logging.getLogger(__name__)

#: Seconds for a write together with reading it back, as in Kafka.
_WRITE_S: Final = 30.0


class ConfigStore:
    """The topic's state on the event loop; `on_notice` is called there for each change."""

    def __init__(
        self, topic: str, loop: asyncio.AbstractEventLoop, on_notice: Callable[[Notice], None]
    ) -> None:
        self.topic: Final = topic
        self._loop: Final = loop
        self._on_notice: Final = on_notice
        self._state: Final = ConfigTopic()
        self._log: TopicLog | None = None
        self._writer: LeaderWriter | None = None

    def use(self, log: TopicLog, writer: LeaderWriter | None) -> None:
        """Write to a log, or by a writer of leaders; call it before anything is written."""
        self._log = log
        self._writer = writer

    @property
    def config(self) -> ClusterConfig:
        """See ConfigurationStore."""
        return self._state.config

    @property
    def offset(self) -> int:
        """The offset after the last record that was read; -1: there is none."""
        return self._state.offset

    @property
    def session_key(self) -> SessionKey | None:
        """The newest key, None if there is none."""
        return self._state.session_key

    def handle(self, record: TopicRecord) -> None:
        """Take a record, in the log's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._take, record)

    def _take(self, record: TopicRecord) -> None:
        notice = self._state.read(record.key, record.value, record.offset)
        if notice is not None:
            self._on_notice(notice)

    async def refresh(self, timeout_s: float) -> bool:
        """Read to the end; return whether that was possible in time."""
        assert self._log is not None
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(self._log.read_to_end(self.topic))
        except TimeoutError:
            return False
        return True

    async def claim(self) -> None:
        """Take the right to write from former leaders; raises ConnectException."""
        if self._writer is not None:
            await asyncio.wrap_future(self._writer.claim())

    async def write(self, change: Change) -> None:
        """See ConfigurationStore."""
        await self.write_records(steps_of(change), f"Error writing {_what(change)} to Kafka")

    async def write_records(self, steps: Sequence[Sequence[Record]], failure: str) -> None:
        """Write records, each step when those before are stored, and read to the end.

        Raises ConnectException that begins with `failure`; it may be stored nevertheless.
        """
        log = self._log
        assert log is not None
        try:
            async with asyncio.timeout(_WRITE_S):
                for step in steps:
                    if self._writer is not None and is_for_leaders(step):
                        await asyncio.wrap_future(self._writer.write(step))
                        continue
                    written = [log.write(self.topic, each.key.encode(), each.value)
                               for each in step]  # fmt: skip
                    await asyncio.gather(*map(asyncio.wrap_future, written))
                await asyncio.wrap_future(log.read_to_end(self.topic))
        except TimeoutError:
            raise ConnectException(f"{failure}: not done within {_WRITE_S:.0f} s") from None
        except ConnectException as error:
            raise ConnectException(f"{failure}: {error}") from error


def _what(change: Change) -> str:
    return "task configurations" if isinstance(change, PutTasks) else "connector configuration"
