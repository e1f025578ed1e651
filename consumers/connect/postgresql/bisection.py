"""Finds the items of a batch that are refused, so that the others are stored nevertheless."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")


class Refused(Exception):
    """A batch was not stored because of one of its items."""

    def __init__(self, error: BaseException, position: int | None = None) -> None:
        """`position` is that of the item, None if it is not known."""
        super().__init__(str(error))
        self.error = error
        self.position = position


class RefusedItem(NamedTuple):
    """The position of an item that is refused, and why."""

    position: int
    error: BaseException


def store_all_but_refused(
    items: Sequence[Item], store: Callable[[Sequence[Item]], None]
) -> list[RefusedItem]:
    """Store a batch in parts as large as possible; return the items that are refused.

    `store` stores all of its items or raises Refused and stores none of them. One bad item in n
    takes about 2 log2(n) further calls. Parts are stored in the order of the items.
    """
    refused: list[RefusedItem] = []
    waiting: list[tuple[int, Sequence[Item]]] = [(0, items)]
    while waiting:
        first, part = waiting.pop()
        if not part:
            continue
        try:
            store(part)
        except Refused as error:
            position = 0 if len(part) == 1 else error.position
            if position is not None:
                refused.append(RefusedItem(first + position, error.error))
                waiting.append((first + position + 1, part[position + 1 :]))
                waiting.append((first, part[:position]))
            else:
                half = len(part) // 2
                waiting.append((first + half, part[half:]))
                waiting.append((first, part[:half]))
    return sorted(refused, key=lambda each: each.position)
