"""Which times of fixes the history keeps."""

from __future__ import annotations

from typing import Final

# The epoch of GPS, 1980-01-06: an earlier time comes from a clock that was not set, as does the
# first day of 1980, where those of FAT begin.
_MIN_MS: Final = 315_964_800_000
# An error larger than two days cannot come from a wrong time zone.
_FUTURE_MAX_MS: Final = 2 * 86_400_000

IMPLAUSIBLE: Final = (
    "implausible time: before 6 January 1980, or more than two days after it was received"
)


def is_plausible_time(time_ms: int, received_ms: int) -> bool:
    """Return whether a fix may have this time; an implausible `received_ms` does not judge it."""
    return time_ms >= _MIN_MS and not (
        time_ms > received_ms + _FUTURE_MAX_MS and received_ms >= _MIN_MS
    )
