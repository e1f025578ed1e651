"""Memory settings of the import process: by default glibc keeps most of the freed memory."""

from __future__ import annotations

import ctypes
from typing import Any, Final

# Constants of malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_MMAP_BYTES: Final = 128 * 1024
_TRIM_BYTES: Final = 1024 * 1024


def limit_retained_memory() -> None:
    """Make the C library return freed memory to the system; call it at the start of the process.

    By default each thread has a heap of its own, and large blocks are kept for reuse. After an
    extract has been read, these are more than what the rest of the import needs. Nothing happens
    where the C library is not glibc.
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
    """Return free pages between blocks in use to the system."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
