"""Programs whose thread dies: their process has to die with it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Final

_BEGIN: Final = """
import logging, sys, threading
logging.basicConfig(format="%(levelname)s %(message)s")

def die(*_arguments, **_options):
    sys.exit(0)

"""
#: The main thread waits like that of a process that serves. The status tells an end by this clock
#: from the one that is expected.
_END: Final = """
import os
threading.Event().wait(30)
os._exit(99)
"""


def assert_process_ends(program: str, thread: str) -> None:
    """Run a program in which a thread of this name calls `die`; check that its process ends."""
    words = [sys.executable, "-c", _BEGIN + textwrap.dedent(program) + _END]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1, ended.stderr
    assert f"CRITICAL thread {thread} failed; this process ends\nTraceback" in ended.stderr
    assert "SystemExit: 0" in ended.stderr
