"""What a history job says of itself in the folder that it writes, for whoever can read that.

The file is written aside and renamed, so that it is whole; it is not flushed to the disk, since it
is of this moment.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from waylog.malformed import MALFORMED
from waylog.process.storage_trouble import is_disk_full

#: Readers of Parquet pass over names that begin so.
FILE: Final = "_job.json"

#: Seconds without a report after which a job that did not say that it ends counts as silent.
SILENT_S: Final = 60.0


class JobReport(msgspec.Struct, frozen=True):
    """How a job is at `time` (ms since 1970 UTC)."""

    time: int
    engine: str  # "spark" or "arrow"
    wrote: int | None = None  # when rows were written last, None: not since its start
    waiting_s: float = 0.0  # for how long records wait without any being written
    trouble: str | None = None  # what keeps it from writing

    def problem(self, now: int) -> str | None:
        """Return what is wrong with the job at a time in ms."""
        silent_s = (now - self.time) / 1000
        if silent_s > SILENT_S:
            return f"nothing heard from the history job for {silent_s:.0f} s"
        return self.trouble


def write_report(folder: Path, report: JobReport) -> bool:
    """Exchange the report in a folder; return whether it could be written.

    On a full disk it is written over the one before, which has its room already.
    """
    aside = folder / f"{FILE}.new"
    content = msgspec.json.encode(report)
    try:
        aside.write_bytes(content)
        aside.replace(folder / FILE)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        return is_disk_full(error) and _written_over(folder / FILE, content)
    return True


def _written_over(path: Path, content: bytes) -> bool:
    # One write: a reader that comes between this and the cut reads no JSON, and asks again.
    try:
        with path.open("r+b", buffering=0) as file:
            return file.write(content) == len(content) == file.truncate(len(content))
    except OSError:
        return False


def read_report(folder: Path) -> JobReport | None:
    """Return the report in a folder; None if there is none, or none that can be read."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=JobReport)
    except (OSError, *MALFORMED):
        return None


def remove_report(folder: Path) -> None:
    """Remove the report of a job that ends."""
    with suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
