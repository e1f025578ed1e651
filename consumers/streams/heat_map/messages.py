"""What topology `heat-map` writes: topic `heat-map`, and the counts between its processors."""

from __future__ import annotations

import msgspec


class CellCount(msgspec.Struct, kw_only=True, frozen=True):
    """Fixes and devices of a cell and window: a record of topic `heat-map`.

    The key is `cell LF window_s LF start`; the newest record of a key is the truth. Both numbers
    are 0 if an erasure has made the devices too few to be told.
    """

    cell: str  # H3 index
    window_s: int
    start: int  # of the window, ms since 1970
    fixes: int
    devices: int


class PartialCount(msgspec.Struct, array_like=True, frozen=True):
    """What one partition of `location` has of a cell and window. It names no device."""

    partition: int
    cell: int  # H3 index
    window_s: int
    start: int  # ms
    fixes: int
    devices: int
