"""Which fixes are in the log already: what makes a repeated fix be stored once."""

from __future__ import annotations

from typing import Final

DEFAULT_CAPACITY: Final = 500_000


def fix_key(device: str, fix_id: str) -> int:
    """What stays in memory of a fix: 64 bits.

    The device goes in beside the id, so that nobody can occupy the ids of another's device.
    Python's string hash is keyed by a secret of the process: collisions cannot be made on purpose.
    """
    return hash((device, fix_id))


class KnownFixes:
    """A set of keys that forgets the oldest: two generations, each half of the capacity.

    When the younger generation is full it becomes the older, which is dropped whole; that costs
    nothing a key, and at least half the capacity is always remembered.
    """

    __slots__ = ("_generation_size", "_older", "_younger")

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._generation_size = max(1, capacity // 2)
        self._younger: set[int] = set()
        self._older: set[int] = set()

    def __contains__(self, key: int) -> bool:
        return key in self._younger or key in self._older

    def __len__(self) -> int:
        return len(self._younger) + len(self._older)

    def add(self, key: int) -> None:
        """Remember a key; a key that is remembered stays so for longer."""
        self._younger.add(key)
        if len(self._younger) >= self._generation_size:
            self._older = self._younger
            self._younger = set()
