"""Checkpoint files of a log: recovery point, log start offset, clean shutdown.

Each is a file of its own in the log's directory. Kafka keeps the first two in one file for all logs
of a disk; separate files need no lock, and no log rewrites the offsets of the others.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.environment import Disk

RECOVERY_POINT: Final = "recovery-point"
LOG_START_OFFSET: Final = "log-start-offset"
CLEAN_SHUTDOWN: Final = "clean-shutdown"

_WITHOUT_CHECKSUM: Final = re.compile(rb"\d{1,19}\n")
_LINE: Final = re.compile(rb"(\d{1,19}) ([0-9a-f]{8})\n")


class StoredOffset(NamedTuple):
    """What a checkpoint says."""

    offset: int | None  # 0 if there is no file, None if it is damaged
    is_sound: bool  # False if the file, or one of its two lines, is damaged


def load_offset(disk: Disk, directory: Path, name: str) -> StoredOffset:
    """Read an offset; raises OSError.

    A file has the offset and its CRC-32 in two lines, so that one of them may be damaged. Without a
    checksum, as earlier versions wrote it, it is a single line.
    """
    path = directory / name
    if disk.size(path) is None:
        return StoredOffset(0, is_sound=True)
    data = disk.read(path)
    if _WITHOUT_CHECKSUM.fullmatch(data):
        return StoredOffset(int(data), is_sound=True)
    half = len(data) // 2
    found = {
        int(match[1])
        for line in (data[:half], data[half:])
        if (match := _LINE.fullmatch(line)) and zlib.crc32(match[1]) == int(match[2], 16)
    }
    if len(found) != 1:
        return StoredOffset(None, is_sound=False)
    (offset,) = found
    return StoredOffset(offset, is_sound=data == _content(offset))


def save_offset(disk: Disk, directory: Path, name: str, offset: int) -> None:
    """Write an offset durably; raises OSError."""
    disk.replace(directory / name, _content(offset))


def _content(offset: int) -> bytes:
    number = b"%d" % offset
    return b"%s %08x\n" % (number, zlib.crc32(number)) * 2


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
