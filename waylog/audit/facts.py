"""What receipts are made of: facts that the log, its readers and the history tell."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class FixFact(NamedTuple):
    """A record of topic `location` that is a fix. Times are ms since 1970 UTC."""

    partition: int
    offset: int
    device: str
    id: str
    time: int  # of the fix
    received: int
    sequence: int | None = None  # the app's own count, if it has one
    #: When the log got it; None if only a history has it.
    stored: int | None = None
    #: The record's key names the same device.
    is_own: bool = True


class AddressFact(NamedTuple):
    """A record of topic `address`: which fix of a device was resolved, and when (ms)."""

    device: str
    fix_id: str
    time: int
    resolved: int


class Refusal(NamedTuple):
    """A record that a reader has refused, or the server of a forwarding."""

    reader: str
    topic: str
    partition: int
    offset: int
    reason: str


class ReaderKind(Enum):
    """What reads topic `location`."""

    RESOLVER = "resolver"
    CONNECTOR = "connector"
    HISTORY = "history"
    GROUP = "group"


class Reader(NamedTuple):
    """A reader of topic `location`: a consumer group, or the history job."""

    name: str
    kind: ReaderKind
    #: Fixes that it lacks count as missing.
    is_expected: bool
    #: The next offset by partition. A partition that is not named has not been begun. None if
    #: nothing is known.
    positions: Mapping[int, int] | None
    #: Everything before the positions has been taken for certain, not only probably.
    is_exact: bool = True

    def has_passed(self, partition: int, offset: int) -> bool:
        """Return whether the reader has gone past an offset."""
        return self.positions is not None and offset < self.positions.get(partition, 0)
