"""Small facts about a log that outlive the process: recovery point, log start, clean shutdown.

One file each in the log's directory. Kafka keeps the first two in one file for all logs of a disk;
a file a log needs no lock and no rewriting of everybody's figures.
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
    """Read an offset; 0 where there is none or it cannot be read."""
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
    """Where a log ended when it was closed with everything on the medium.

    It stays until the log is changed, so that one that is only read is closed without any work. It
    holds only for a last segment of exactly this length: if the removal of the file did not
    survive a power cut but appends did, the lengths differ.
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
        """Read the mark; None where there is none or it cannot be read."""
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
        """Remove the mark, before the log is changed; raises OSError."""
        disk.remove(directory / CLEAN_SHUTDOWN)
