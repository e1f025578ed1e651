"""Which messages may be acknowledged: those that the log has, in the order in which they came.

A client acknowledges messages in their order (MQTT 5.0, 4.6), the log in any.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

Message = TypeVar("Message")


class OrderedAcknowledgements(Generic[Message]):
    """Messages on their way into the log. Its methods may be called in any thread."""

    def __init__(self, acknowledge: Callable[[Message], None]) -> None:
        """`acknowledge` is called once for each message, one call after the other."""
        self._acknowledge: Final = acknowledge
        self._lock: Final = threading.Lock()
        self._waiting: Final[deque[int]] = deque()
        self._messages: Final[dict[int, Message]] = {}
        self._stored: Final[set[int]] = set()
        self._next = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: Message) -> int:
        """Take note of a message; return its number."""
        with self._lock:
            number = self._next
            self._next += 1
            self._waiting.append(number)
            self._messages[number] = message
            return number

    def stored(self, number: int) -> None:
        """Take note that the log has a message; what it says again has no effect."""
        with self._lock:
            if number not in self._messages:
                return
            self._stored.add(number)
            while self._waiting and self._waiting[0] in self._stored:
                first = self._waiting.popleft()
                self._stored.discard(first)
                self._acknowledge(self._messages.pop(first))
