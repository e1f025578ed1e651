"""The names of a history's files, relative to its folder.

All files lie below `month=YYYY-MM`, the month of their fixes in UTC, so that every reader of
partitioned folders finds in `month` what is true of each row:

- `month=2026-01/2026-01-31-location-<partition>-<first offset>-<last offset>.parquet`: fixes of a
  date in the order they arrived.
- `month=2026-01/2026-01-30-compacted-<...>.parquet`: a packed date.
- `month=2025-12/compacted-<...>.parquet`: a packed month.

Versions before decision 42 wrote into `date=YYYY-MM-DD` and `date=YYYY-MM`. Files there still
count, until they are packed.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

#: The length of a month's name; the name of a date is longer.
MONTH_LENGTH: Final = len("YYYY-MM")

_FOLDER: Final = "month="
_OUTDATED_FOLDER: Final = "date="
_LANDED: Final = re.compile(
    r"(?:month=(\d{4}-\d\d)/(\1-\d\d)-|date=(\d{4}-\d\d-\d\d)/)"
    r"location-(\d+)-(\d+)-(\d+)\.parquet"
)
_COMPACTED: Final = re.compile(
    r"(?:month=(\d{4}-\d\d)/(?:\1-\d\d-)?|date=\d{4}-\d\d(?:-\d\d)?/)compacted-[^/]+\.parquet"
)


class OffsetSpan(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Offsets `first` to `last` of one partition, both inclusive."""

    partition: int
    first: int
    last: int


class HistoryFile(NamedTuple):
    """A file of the history that counts."""

    path: str
    date: str  # a month for a compacted file of a month
    span: OffsetSpan | None  # None for a compacted file
    bytes: int


def folder_of(period: str) -> str:
    """Return the folder of the files of a date or month."""
    return f"{_FOLDER}{period[:MONTH_LENGTH]}"


def is_period_folder(name: str) -> bool:
    """Return whether a folder of the history has files with fixes, of this layout or before."""
    return name.startswith((_FOLDER, _OUTDATED_FOLDER))


def landed_path(date: str, span: OffsetSpan) -> str:
    """Return the path of the fixes of a date among some offsets, as they came in."""
    return (
        f"{folder_of(date)}/{date}-location-{span.partition}-{span.first:020d}-{span.last:020d}"
        ".parquet"
    )


def compacted_path(period: str, run: str, number: int) -> str:
    """Return the path of a packed file of a date or month, given what names it uniquely."""
    of_date = f"{period}-" if len(period) > MONTH_LENGTH else ""
    return f"{folder_of(period)}/{of_date}compacted-{run}-{number:05d}.parquet"


def parse_name(path: str, size: int = 0) -> HistoryFile | None:
    """Return the `location` file that a path names; None for others."""
    match = _LANDED.fullmatch(path)
    if match is None:
        return None
    span = OffsetSpan(int(match[4]), int(match[5]), int(match[6]))
    return HistoryFile(path, match[2] or match[3], span, size)


def is_compacted(path: str) -> bool:
    """Return whether a path is that of a packed file, which counts if the manifest names it."""
    return _COMPACTED.fullmatch(path) is not None


def is_outdated(path: str) -> bool:
    """Return whether a file is where versions before decision 42 wrote, in their layout."""
    return path.startswith(_OUTDATED_FOLDER)
