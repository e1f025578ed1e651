"""Keeps a sink task from taking values that the platform has sealed for text or JSON.

Connectors get values as they are in the log. A converter that reads them fails at sealed ones, or
makes nonsense of them, and a task that tolerates errors would leave all of them out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Message

from consumers.connect.data.exceptions import ConnectException
from waylog.config import ConfigError
from waylog.kafka.clients import LogUnreachable
from waylog.process.log_throttle import RepeatedFailure
from waylog.sealing.unopened import Unopened

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0


class SealedRecords:
    """Refuses sealed values, in the thread of one task."""

    def __init__(self, task: str, unopened: Unopened | None) -> None:
        """`task` is its name; `unopened` is None for a task that takes bytes as they are."""
        self._task: Final = task
        self._unopened: Final = unopened

    def check(self, messages: Sequence[Message], stopping: threading.Event) -> bool:
        """Return whether the messages may be taken; False only if `stopping` is set.

        Raises ConnectException for a sealed one, whatever errors are tolerated: those behind it are
        sealed too.
        """
        if self._unopened is None:
            return True
        failures = RepeatedFailure()
        while True:
            try:
                self._unopened.check(each.value() for each in messages)
            except ConfigError as error:
                raise ConnectException(
                    "the log's values are sealed, and connectors do not open them; "
                    "ByteArrayConverter as value.converter passes them on sealed"
                ) from error
            except LogUnreachable as error:
                if failures.is_new(error):
                    logger.warning("task %s waits for keys: %s", self._task, error)
                if stopping.wait(_AGAIN_S):
                    return False
            else:
                return True
