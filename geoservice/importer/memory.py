"""Memory of the process that imports: glibc's defaults keep most of what is not used any more."""

from __future__ import annotations

import ctypes
from typing import Any, Final

# Of malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_MMAP_BYTES: Final = 128 * 1024
_TRIM_BYTES: Final = 1024 * 1024


def keep_little() -> None:
    """Let the C library give memory back when it is free; for the whole process, at its start.

    By default each thread has a heap of its own, and large pieces are kept for the next ones: after
    the reading of an extract that is more than what the import needs. Nothing happens where the C
    library is not glibc.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        for parameter, value in (
            (_ARENA_MAX, 1),
            (_MMAP_THRESHOLD, _MMAP_BYTES),
            (_TRIM_THRESHOLD, _TRIM_BYTES),
        ):
            mallopt(parameter, value)


def give_back() -> None:
    """Give free pages between pieces in use back."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
