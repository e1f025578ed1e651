"""Interfaces of the persistent state of a quorum replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker_core.quorum.entries import Entry, EpochEnd, ReplicaKey, Snapshot


class Election(NamedTuple):
    """The newest epoch that a replica knows, and the candidate it voted for in that epoch."""

    epoch: int
    voted: ReplicaKey | None


class ElectionStore(Protocol):
    """Stores the election state; if a vote could be lost, there could be two leaders."""

    def load(self) -> Election:
        """Return the state last saved; epoch 0 and no vote on a new disk."""

    def save(self, election: Election) -> None:
        """Return when the state is durable."""


class MetadataLog(Protocol):
    """The log of one replica: entries from `start_offset` on, and the snapshot before them.

    start_offset <= flushed_offset <= end_offset
    """

    @property
    def start_offset(self) -> int:
        """Offset of the first entry; the end offset of the snapshot, or 0."""

    @property
    def flushed_offset(self) -> int:
        """All entries before it are durable."""

    @property
    def end_offset(self) -> int:
        """Offset of the next entry."""

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry or of the snapshot; 0 if there is neither."""

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot that replaces the entries before `start_offset`."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries at the end; they are durable after `flush`."""

    def flush(self) -> None:
        """Return when all appended entries are durable."""

    def truncate(self, end_offset: int) -> None:
        """Remove the entries from `end_offset` on, durably."""

    def read(self, offset: int, count: int) -> tuple[Entry, ...]:
        """Return at most `count` entries from `offset` on."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch in the log that is not larger than `epoch`, and its end.

        Entries that the snapshot replaces count as its epoch.
        """

    def install(self, snapshot: Snapshot) -> None:
        """Replace, durably, everything before the snapshot's end with the snapshot.

        Entries behind it stay if the last entry that it replaces has its epoch. Otherwise they do
        not continue the snapshot: the log becomes empty and begins at the snapshot's end.
        """
