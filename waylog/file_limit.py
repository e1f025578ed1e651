"""How many files a process may hold open."""

from __future__ import annotations

import resource


def raise_file_limit() -> int:
    """Take as many as the system gives: a connection is a file, and so is a log that is written.

    The usual limit is 1,024, which no server wants; what the system allows is far more. Returns it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
