"""Which records of a sink task are those of erased devices (waylog.history.erasures).

A record belongs to the device that its key names, in the first line of it, as in all topics of the
platform. It is erased if it was written before the device was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final, Protocol

from confluent_kafka import Message

from consumers.connect.data.exceptions import ConnectException, RetriableException
from consumers.connect.data.records import SinkRecord
from consumers.connect.plugins.sink_task import SinkTask
from consumers.connect.storage.states import TaskId
from waylog.history.erasures import Erasures
from waylog.kafka.clients import LogForbidden, LogUnreachable

logger = logging.getLogger(__name__)

#: How long the log of erasures may be silent until that is told.
_SILENCE_S: Final = 30.0
#: Seconds until an erasure is tried again that could not be carried out.
_AGAIN_S: Final = 3.0


class ErasureSource(Protocol):
    """Follows the log of erasures, for all tasks of a worker."""

    @property
    def erasures(self) -> Erasures:
        """What is erased."""

    def wait(self, timeout_s: float, *, stopping: threading.Event) -> bool:
        """Wait until everything that is in the log has been read; False if `stopping` is set.

        Raises LogUnreachable, and LogForbidden for a missing right.
        """


class ErasedRecords:
    """Leaves records of erased devices out, in the thread of one task."""

    def __init__(self, task_id: TaskId, source: ErasureSource | None) -> None:
        """`source` is None for a worker that honours no erasures."""
        self._task_id: Final = task_id
        self._source: Final = source
        self._erasures: Final = Erasures() if source is None else source.erasures
        self._told: dict[str, int] = {}
        self._told_changes = 0
        self._checked_changes = 0
        self._tell_at = 0.0
        #: Records that were left out.
        self.count = 0

    def wait(self, stopping: threading.Event) -> bool:
        """Wait until all erasures are known; return False if `stopping` is set before.

        Raises ConnectException if the log forbids it: what is erased must not be delivered.
        """
        if self._source is None:
            return True
        while True:
            try:
                return self._source.wait(_SILENCE_S, stopping=stopping)
            except LogForbidden as error:
                raise ConnectException(
                    f"erasures cannot be read: {error}; give the right, or set "
                    "erasures.enable=false on the worker if the cluster has none of Waylog's"
                ) from error
            except LogUnreachable as error:
                logger.warning("task %s waits for erasures: %s", self._task_id, error)

    def tell(self, task: SinkTask) -> None:
        """Have a task remove what it has delivered of devices that were erased since."""
        if self._erasures.changes == self._told_changes or time.monotonic() < self._tell_at:
            return
        changes, known = self._erasures.changes, self._erasures.known()
        told = self._told
        untold = {device: at for device, at in known.items() if told.get(device) != at}
        try:
            task.erase(untold)
        except RetriableException as error:
            logger.warning("task %s: erasures come again: %s", self._task_id, error)
            self._tell_at = time.monotonic() + _AGAIN_S
            return
        self._told, self._told_changes = known, changes

    def without(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages without those that are erased."""
        if not self._erasures:
            return messages
        kept = [each for each in messages if not self._is_erased(each)]
        if len(kept) < len(messages):
            self.count += len(messages) - len(kept)
            logger.debug("task %s: %d records are erased", self._task_id, self.count)
        return kept

    def drop(self, records: list[SinkRecord], messages: Sequence[Message]) -> list[SinkRecord]:
        """Return records that a task could not take yet without those that were erased meanwhile.

        `messages` are those that the records were made of.
        """
        if self._erasures.changes == self._checked_changes:
            return records
        self._checked_changes = self._erasures.changes
        erased = {
            (each.topic() or "", each.partition(), each.offset() or 0)
            for each in messages
            if self._is_erased(each)
        }
        return [each for each in records if each.place not in erased] if erased else records

    def _is_erased(self, message: Message) -> bool:
        key = message.key()
        if key is None:
            return False
        data = key.encode() if isinstance(key, str) else key
        device = data.partition(b"\n")[0].decode("utf-8", "replace")
        return self._erasures.covers(device, message.timestamp()[1])
