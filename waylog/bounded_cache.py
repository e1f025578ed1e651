"""A cache of as many results as fit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class BoundedCache(Generic[Key, Result]):
    """Keeps what a function has returned; of too many the oldest is forgotten.

    Schemas are few and come again and again, so the order of use is not kept. Several threads may
    ask; two that ask for the same at the same time may both call the function.
    """

    __slots__ = ("_changing", "_entries", "_function", "_size")

    def __init__(self, function: Callable[[Key], Result], size: int = 16) -> None:
        """`size` 0 keeps nothing."""
        self._function: Final = function
        self._size: Final = size
        self._entries: Final[dict[Key, Result]] = {}
        self._changing: Final = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> Result:
        """Return the result for a key; raises what the function raises."""
        found = self._entries.get(key)
        if found is None:
            found = self._function(key)
            with self._changing:
                if len(self._entries) >= self._size > 0:
                    del self._entries[next(iter(self._entries))]
                if self._size > 0:
                    self._entries[key] = found
        return found
