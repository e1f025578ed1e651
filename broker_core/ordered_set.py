"""A set that is gone through in the order of adding, so that a run can be repeated exactly."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class OrderedSet(dict[T, None]):
    """What is used of a set, on a dict: that of objects would follow their addresses."""

    __slots__ = ()

    def add(self, item: T) -> None:
        """Add at the end what is not there."""
        self[item] = None

    def discard(self, item: T) -> None:
        """Remove what may be there."""
        self.pop(item, None)

    def remove(self, item: T) -> None:
        """Remove what is there; raises KeyError."""
        del self[item]
