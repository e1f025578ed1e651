"""A replica's metadata log, with what is committed in it and which voters it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_core.quorum.entries import Entry, EpochEnd, Snapshot, Voters
from broker_core.quorum.storage import MetadataLog
from broker_core.quorum.voter_history import VoterHistory


class LogsDisagree(Exception):
    """The leader's log contradicts entries that are committed here; the replica cannot continue."""


class ReplicatedLog:
    """What a replica has of the log that a quorum agrees on.

    All changes of the stored log are made here: they are durable when a method returns, and the
    voters and the high watermark follow them.
    """

    def __init__(self, stored: MetadataLog, bootstrap_voters: Voters) -> None:
        """`bootstrap_voters` are the voters of a log that names none."""
        #: To be read; nobody else changes it.
        self.stored: Final = stored
        #: Entries before it are committed; None until it is known.
        self.high_watermark = None if stored.snapshot is None else stored.snapshot.end_offset
        self._bootstrap_voters = bootstrap_voters
        self._voters = VoterHistory(bootstrap_voters, stored)

    @property
    def committed(self) -> int:
        """The high watermark as far as it is known, 0 at first."""
        return self.high_watermark or 0

    @property
    def voters(self) -> Voters:
        """The voters named by the newest entry about them, committed or not."""
        return self._voters.newest

    @property
    def voters_changed_at(self) -> int:
        """Offset of the entry that named them; -1 for those of the snapshot or bootstrap."""
        return self._voters.changed_at

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries, durably."""
        self._voters.appended(self.stored.end_offset, entries)
        self.stored.append(entries)
        self.stored.flush()

    def commit(self, offset: int) -> None:
        """Raise the high watermark to an offset; it is never lowered."""
        if offset > self.committed:
            self.high_watermark = offset

    def truncate(self, diverging: EpochEnd, leader_epoch: int) -> None:
        """Remove the entries behind an epoch's end in the leader's log; raises LogsDisagree."""
        ours = self.stored.end_of_epoch(diverging.epoch)
        end_offset = min(ours.end_offset, diverging.end_offset)
        if end_offset < max(self.committed, self.stored.start_offset):
            raise LogsDisagree(
                f"the leader of epoch {leader_epoch} has the same entries up to offset "
                f"{end_offset} only, but those up to {self.high_watermark} are committed"
            )
        self.stored.truncate(end_offset)
        self._voters.truncated(end_offset)

    def take_snapshot(self, end_offset: int, data: bytes) -> None:
        """Replace the entries before a committed offset; `data` is the state that they make."""
        if not self.stored.start_offset < end_offset <= self.committed:
            raise ValueError(f"offset {end_offset} is not committed, or before the last snapshot")
        [last] = self.stored.read(end_offset - 1, 1)
        self._install(Snapshot(end_offset, last.epoch, self._voters.before(end_offset), data))

    def install(self, snapshot: Snapshot) -> None:
        """Replace the entries before the end of a snapshot of the leader's."""
        self._install(snapshot)
        self.commit(snapshot.end_offset)

    def _install(self, snapshot: Snapshot) -> None:
        self.stored.install(snapshot)
        self._voters = VoterHistory(self._bootstrap_voters, self.stored)
