"""A process that can open no file for a while."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

#: Standard input, output and error, which are open in any process.
_STANDARD = 3


@contextmanager
def none_free() -> Iterator[None]:
    """Refuse new file descriptors (EMFILE) within the block; those that are open stay usable."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_STANDARD, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
