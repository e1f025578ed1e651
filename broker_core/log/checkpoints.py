"""Checkpoint files of a log: recovery point, log start offset, clean shutdown.

Each is a file of its own in the log's directory. Kafka keeps the first two in one file for all logs
of a disk; separate files need no lock, and no log rewrites the offsets of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker_core.environment import Disk

RECOVERY_POINT: Final = "recovery-point"
LOG_START_OFFSET: Final = "log-start-offset"
CLEAN_SHUTDOWN: Final = "clean-shutdown"


def load_offset(disk: Disk, directory: Path, name: str) -> int:
    """Read an offset; return 0 if the file is missing or cannot be parsed."""
    path = directory / name
    if disk.size(path) is None:
        return 0
    try:
        return max(0, int(disk.read(path)))
    except ValueError:
        return 0


def save_offset(disk: Disk, directory: Path, name: str, offset: int) -> None:
    """Write an offset durably; raises OSError."""
    disk.replace(directory / name, b"%d\n" % offset)


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The end of a log that was closed with all of its data on disk.

    The file stays until the log is changed, so closing a log that was only read costs nothing. The
    mark is valid only if the last segment still has exactly this length: if the removal of the file
    did not survive a power cut but appends did, the lengths differ.
    """

    segment_base_offset: int
    segment_bytes: int
    log_end_offset: int

    def save(self, disk: Disk, directory: Path) -> None:
        """Write the mark durably; raises OSError."""
        text = f"{self.segment_base_offset} {self.segment_bytes} {self.log_end_offset}\n"
        disk.replace(directory / CLEAN_SHUTDOWN, text.encode())

    @classmethod
    def load(cls, disk: Disk, directory: Path) -> CleanShutdown | None:
        """Read the mark; return None if the file is missing or cannot be parsed."""
        path = directory / CLEAN_SHUTDOWN
        if disk.size(path) is None:
            return None
        try:
            base_offset, size, end_offset = map(int, disk.read(path).split())
        except ValueError:
            return None
        return cls(base_offset, size, end_offset)

    @staticmethod
    def remove(disk: Disk, directory: Path) -> None:
        """Remove the mark before the log is changed; raises OSError."""
        disk.remove(directory / CLEAN_SHUTDOWN)
