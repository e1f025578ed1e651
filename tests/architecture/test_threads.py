"""Threads are started where their end is seen (`waylog/process/threads.py`)."""

from __future__ import annotations

import re
from typing import Final

from tests.architecture.test_rooms import sources

#: Threads of load tests end with what they measure. The broker's worker is excepted for now.
EXCEPTIONS: Final = ("waylog.process.threads", "broker_core.environment", "load_tests")

_THREAD: Final = re.compile(r"\bThread\(|\((?:threading\.)?Thread\)|_thread\.start_new")


def test_no_thread_ends_unseen() -> None:
    bare = [
        f"{module}: {line.strip()}"
        for module, paths in sources().items()
        if not f"{module}.".startswith(tuple(f"{each}." for each in EXCEPTIONS))
        for path in paths
        for line in path.read_text().splitlines()
        if _THREAD.search(line)
    ]
    assert bare == []
