"""The start offset of each leader epoch: Kafka's `leader-epoch-checkpoint`.

A follower that comes back asks the leader where its last epoch ended and truncates its log there
(KIP-101, KIP-279). Format: version, number of entries, then one line `epoch start_offset` for each.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from operator import itemgetter
from pathlib import Path
from typing import Final

from broker_core.environment import Disk

logger = logging.getLogger(__name__)

FILE_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"


class LeaderEpochs:
    """Leader epochs and their start offsets; both ascend strictly."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / FILE_NAME
        self._entries: list[tuple[int, int]] = []

    @classmethod
    def load(cls, disk: Disk, directory: Path) -> LeaderEpochs:
        """Read the checkpoint; if it is missing or damaged, the table is empty."""
        epochs = cls(disk, directory)
        if disk.size(epochs._path) is not None:
            entries = _parse(disk.read(epochs._path))
            if entries is None:
                logger.warning(
                    "%s is damaged: where the leader epochs of older records end is not known, and "
                    "followers may get them again from their leader",
                    epochs._path,
                )
            epochs._entries = entries or []
        return epochs

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs."""
        return list(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if none is known."""
        return self._entries[-1][0] if self._entries else -1

    def assign(self, epoch: int, start_offset: int, *, save: bool = True) -> None:
        """Record that `epoch` begins at an offset; do nothing if the epoch is not a newer one.

        Raises OSError where the checkpoint cannot be written.
        """
        if epoch <= self.latest:
            return
        # Epochs that begin at or behind this offset were truncated, or never held a record.
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        if save:
            self.save()

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch not above `epoch`, its end offset), or (-1, -1).

        As Kafka's OffsetForLeaderEpoch: an epoch ends where the next one starts, the newest one at
        the log's end. An epoch older than all known ones ends where the first known one begins.
        """
        index = bisect_right(self._entries, (epoch, 2**63))
        if not self._entries or epoch < 0:
            return -1, -1
        if index == 0:
            return epoch, self._entries[0][1]
        end = self._entries[index][1] if index < len(self._entries) else log_end_offset
        return self._entries[index - 1][0], end

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which the record at `offset` was written, -1 if unknown."""
        index = bisect_right(self._entries, offset, key=itemgetter(1))
        return self._entries[index - 1][0] if index else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that begin at or behind the log's new end, and save."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if len(kept) != len(self._entries):
            self._entries = kept
            self.save()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended at or before the log's new start.

        This is not saved: recovery knows the log's start and repeats it on the loaded checkpoint.
        """
        index = bisect_right([start for _, start in self._entries], start_offset)
        if index > 0 and self._entries[0][1] != start_offset:
            epoch = self._entries[index - 1][0]
            self._entries = [(epoch, start_offset), *self._entries[index:]]

    def save(self) -> None:
        """Write the checkpoint; raises OSError."""
        lines = [_VERSION, str(len(self._entries))]
        lines += [f"{epoch} {start}" for epoch, start in self._entries]
        self._disk.replace(self._path, ("\n".join(lines) + "\n").encode())


def _parse(data: bytes) -> list[tuple[int, int]] | None:
    try:
        version, count, *lines = data.decode().split("\n")
        entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines[:-1])]
    except ValueError:
        return None
    if version != _VERSION or count != str(len(entries)) or entries != sorted(set(entries)):
        return None
    return entries
