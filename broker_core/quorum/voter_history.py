"""The sets of voters over the offsets of the metadata log."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.quorum.entries import Entry, EntryKind, Voters, decode_voters
from broker_core.quorum.storage import MetadataLog

_ENTRIES_AT_ONCE = 1000


class VoterHistory:
    """The sets of voters by the offset of the entry that recorded them.

    The newest set is in force, committed or not; a truncation restores an earlier one (Ongaro,
    4.1).
    """

    def __init__(self, bootstrap: Voters, log: MetadataLog) -> None:
        """Read the log; `bootstrap` are the voters if neither log nor snapshot names any."""
        snapshot = log.snapshot
        self._changes = [(-1, bootstrap if snapshot is None else snapshot.voters)]
        offset = log.start_offset
        while entries := log.read(offset, _ENTRIES_AT_ONCE):
            self.appended(offset, entries)
            offset += len(entries)

    @property
    def newest(self) -> Voters:
        """The voters in force."""
        return self._changes[-1][1]

    @property
    def changed_at(self) -> int:
        """Offset of the entry that named the newest; -1 for those of the snapshot or bootstrap."""
        return self._changes[-1][0]

    def before(self, offset: int) -> Voters:
        """Return the voters in force before the entry at `offset`."""
        return next(voters for changed, voters in reversed(self._changes) if changed < offset)

    def appended(self, offset: int, entries: Iterable[Entry]) -> None:
        """Record the changes of voters in entries appended at `offset`."""
        for number, entry in enumerate(entries, offset):
            if entry.kind == EntryKind.VOTERS:
                self._changes.append((number, decode_voters(entry.value)))

    def truncated(self, end_offset: int) -> None:
        """Forget the changes in entries from `end_offset` on, which were removed."""
        while self._changes[-1][0] >= max(end_offset, 0):
            self._changes.pop()
