"""A set with a defined order of iteration, so that a run can be repeated exactly."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class OrderedSet(dict[T, None]):
    """A set, implemented as a dict, that iterates in insertion order.

    The order of a plain set of objects would depend on their memory addresses.
    """

    __slots__ = ()

    def add(self, item: T) -> None:
        """Add an item at the end; keep the place of one that is there."""
        self[item] = None

    def discard(self, item: T) -> None:
        """Remove an item if it is there."""
        self.pop(item, None)

    def remove(self, item: T) -> None:
        """Remove an item; raises KeyError if it is missing."""
        del self[item]
