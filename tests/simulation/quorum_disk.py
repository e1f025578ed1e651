"""The disk of a simulated replica: it forgets what was not flushed, and may fail at any step."""

from __future__ import annotations

import random
from collections.abc import Sequence

from broker_core.quorum.entries import Entry, EpochEnd, Snapshot
from broker_core.quorum.storage import Election


class PowerCut(Exception):
    """The node stops within a step of its disk."""


class Disk:
    """What survives a crash; implements both MetadataLog and ElectionStore."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self._election = Election(0, None)
        self._snapshot: Snapshot | None = None
        self._entries: list[Entry] = []
        self._flushed = 0  # entries
        self.steps_left: int | None = None  # until the power is cut
        self.votes: dict[int, object] = {}

    def power_cut(self) -> None:
        """Forget what was not flushed: all of it, or a part."""
        unflushed = len(self._entries) - self._flushed
        if unflushed > 0:
            del self._entries[self._flushed + self._random.randint(0, unflushed) :]
        self._flushed = len(self._entries)
        self.steps_left = None

    def _step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise PowerCut

    # ElectionStore

    def load(self) -> Election:
        return self._election

    def save(self, election: Election) -> None:
        self._step()
        self._election = election
        self._step()

    # MetadataLog

    @property
    def start_offset(self) -> int:
        return 0 if self._snapshot is None else self._snapshot.end_offset

    @property
    def flushed_offset(self) -> int:
        return self.start_offset + self._flushed

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self._entries)

    @property
    def last_epoch(self) -> int:
        if self._entries:
            return self._entries[-1].epoch
        return 0 if self._snapshot is None else self._snapshot.epoch

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def append(self, entries: Sequence[Entry]) -> None:
        self._step()
        self._entries += entries
        self._step()

    def flush(self) -> None:
        self._step()
        self._flushed = len(self._entries)
        self._step()

    def truncate(self, end_offset: int) -> None:
        self._step()
        del self._entries[end_offset - self.start_offset :]
        self._flushed = min(self._flushed, len(self._entries))
        self._step()

    def read(self, offset: int, count: int) -> tuple[Entry, ...]:
        first = offset - self.start_offset
        return tuple(self._entries[first : first + count])

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        for number in range(len(self._entries), 0, -1):
            found = self._entries[number - 1].epoch
            if found <= epoch:
                return EpochEnd(found, self.start_offset + number)
        return EpochEnd(0 if self._snapshot is None else self._snapshot.epoch, self.start_offset)

    def install(self, snapshot: Snapshot) -> None:
        self._step()
        last = snapshot.end_offset - 1 - self.start_offset
        if 0 <= last < len(self._entries) and self._entries[last].epoch == snapshot.epoch:
            del self._entries[: last + 1]
        else:
            self._entries.clear()
        self._snapshot = snapshot
        self._flushed = len(self._entries)
        self._step()
