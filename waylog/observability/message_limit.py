"""Bounds how much of the log one kind of message takes: clients cause as many as they like."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: Messages of a kind that are written at once, after a while without; starts write thousands.
BURST: Final = 1_000
#: Messages of a kind that are written each second in the long run.
PER_SECOND: Final = 20.0
#: Messages that one with a traceback counts for.
_TRACEBACK: Final = 10.0


@dataclass
class _Kind:
    room: float
    at_s: float
    left_out: int = 0


class MessageLimit(logging.Filter):
    """Leaves out messages of one line of code beyond a burst and a rate, but critical ones never.

    The next message that is written tells how many were left out, as `left_out` of its record.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, int], _Kind] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging.Filter."""
        if record.levelno >= logging.CRITICAL:
            return True
        cost = _TRACEBACK if record.exc_info else 1.0
        now_s = self._monotonic()
        with self._lock:
            kind = self._kinds.setdefault((record.pathname, record.lineno), _Kind(BURST, now_s))
            kind.room = min(BURST, kind.room + (now_s - kind.at_s) * PER_SECOND)
            kind.at_s = now_s
            if kind.room < cost:
                kind.left_out += 1
                return False
            kind.room -= cost
            record.left_out, kind.left_out = kind.left_out, 0
        return True
