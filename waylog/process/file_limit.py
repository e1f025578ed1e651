"""How many files a process may hold open."""

from __future__ import annotations

import resource
from typing import Final

_OWN_FILES: Final = 1000


def raise_file_limit() -> int:
    """Take as many as the system gives: a connection is a file, and so is a log that is written.

    The usual limit is 1,024, which no server wants; what the system allows is far more. Returns it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def room_for_connections() -> int:
    """How many of its files a process may spend on those who connect to it.

    The others are its own: logs, databases, connections to other parts, and connections that are
    being refused.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft - _OWN_FILES, soft // 2)
