"""A folder in memory for the files of tests.

They write hundreds of thousands of small files, sync many of them, and delete them. On a disk that
takes more time than the tests themselves.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_SHARED_MEMORY: Final = Path("/dev/shm")
_MEMORY_INFO: Final = Path("/proc/meminfo")
#: The tests' files take less than a gigabyte at any time; the rest is for their processes.
_BYTES_MIN: Final = 6 << 30


def memory_folder(
    folder: Path = _SHARED_MEMORY, memory_info: Path = _MEMORY_INFO, bytes_min: int = _BYTES_MIN
) -> Path | None:
    """Return a folder in memory that can be used like /tmp; None if there is none, or little room.

    `memory_info` is a file like /proc/meminfo. Containers often have 64 MB of shared memory.
    """
    try:
        found = os.statvfs(folder)
        available = re.search(r"^MemAvailable: +(\d+) kB$", memory_info.read_text(), re.MULTILINE)
    except OSError:
        return None
    room = min(found.f_bavail * found.f_frsize, int(available[1]) * 1024 if available else 0)
    # Tests make programs and run them.
    if room < bytes_min or found.f_flag & os.ST_NOEXEC or not os.access(folder, os.W_OK):
        return None
    return folder
