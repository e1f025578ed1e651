"""What a replica of the quorum needs to keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker_core.quorum.entries import Entry, EpochEnd, ReplicaKey, Snapshot


class Election(NamedTuple):
    """The newest epoch that a replica knows, and for whom it voted in it."""

    epoch: int
    voted: ReplicaKey | None


class ElectionStore(Protocol):
    """Keeps the election state; a vote that can be forgotten makes two leaders."""

    def load(self) -> Election:
        """The state last saved; epoch 0 and no vote on a new disk."""

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
        """Everything before is durable."""

    @property
    def end_offset(self) -> int:
        """Offset of the next entry."""

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry, or of the snapshot; 0 where there is neither."""

    @property
    def snapshot(self) -> Snapshot | None:
        """What stands for the entries before `start_offset`."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries at the end; durable after `flush`."""

    def flush(self) -> None:
        """Return when everything appended is durable."""

    def truncate(self, end_offset: int) -> None:
        """Remove the entries from `end_offset` on, durably."""

    def read(self, offset: int, count: int) -> tuple[Entry, ...]:
        """At most `count` entries from `offset` on."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch in the log that is not larger than `epoch`, and where it ends.

        What the snapshot holds counts as its last epoch.
        """

    def install(self, snapshot: Snapshot) -> None:
        """Replace, durably, everything before the snapshot's end by the snapshot.

        Entries behind it stay where the last entry that it replaces is of its epoch; else they are
        not what came after it, and the log is empty and begins there.
        """
