"""Long lists on the event loop, without keeping everything else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

_Item = TypeVar("_Item")

#: Items that are handled at a time: a fraction of a millisecond where each is looked at.
_PIECE: Final = 100


async def in_pieces(items: Sequence[_Item]) -> AsyncIterator[Sequence[_Item]]:
    """Yield some items at a time; whatever else the event loop has to do comes in between."""
    for first in range(0, len(items), _PIECE):
        if first:
            await asyncio.sleep(0)
        yield items[first : first + _PIECE]
