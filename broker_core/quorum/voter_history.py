"""The voters, as the log says from offset to offset."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.quorum.entries import Entry, EntryKind, ReplicaKey, decode_voters
from broker_core.quorum.storage import MetadataLog

_ENTRIES_AT_ONCE = 1000


class VoterHistory:
    """The voters by the offset of the entry that named them.

    The newest count, committed or not; a truncation brings the former ones back (Ongaro, 4.1).
    """

    def __init__(self, bootstrap: frozenset[ReplicaKey], log: MetadataLog) -> None:
        """Read the log; `bootstrap` votes where it and its snapshot say nothing."""
        snapshot = log.snapshot
        self._changes = [(-1, bootstrap if snapshot is None else snapshot.voters)]
        offset = log.start_offset
        while entries := log.read(offset, _ENTRIES_AT_ONCE):
            self.appended(offset, entries)
            offset += len(entries)

    @property
    def newest(self) -> frozenset[ReplicaKey]:
        """The voters of now."""
        return self._changes[-1][1]

    @property
    def changed_at(self) -> int:
        """Offset of the entry that named the newest; -1 for those of the snapshot or bootstrap."""
        return self._changes[-1][0]

    def before(self, offset: int) -> frozenset[ReplicaKey]:
        """The voters by the entries before `offset`."""
        return next(voters for changed, voters in reversed(self._changes) if changed < offset)

    def appended(self, offset: int, entries: Iterable[Entry]) -> None:
        """Entries were appended at `offset`."""
        for number, entry in enumerate(entries, offset):
            if entry.kind == EntryKind.VOTERS:
                self._changes.append((number, decode_voters(entry.value)))

    def truncated(self, end_offset: int) -> None:
        """The entries from `end_offset` on are gone."""
        while self._changes[-1][0] >= max(end_offset, 0):
            self._changes.pop()
