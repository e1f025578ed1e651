"""Tunes the memory allocator of the GNU C library for servers (mallopt(3))."""

from __future__ import annotations

from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

#: Larger allocations go back to the system when they are freed.
_LARGE_BYTES: Final = 1024 * 1024
#: Free bytes at the end of the heap that are kept.
_KEPT_BYTES: Final = 8 * 1024 * 1024


def tune_memory_allocator() -> None:
    """Give large pieces of memory back once they are free; to be called before threads begin.

    By default the limit above which the library does that rises with what is freed, up to 32 MiB,
    and each thread has a heap of its own. A server that has expanded some hundred large bodies in
    threads would keep hundreds of megabytes, in pieces between which something is still in use.
    Does nothing where the C library has no mallopt.
    """
    import ctypes  # not loaded with this module: most of what runs this does not need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_ARENA_MAX, 2)
