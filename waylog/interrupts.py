"""Ends the command `waylog` quietly at Ctrl-C from its first moment on.

Importing the command's modules takes tenths of a second, in which a KeyboardInterrupt would come
out of some library as a traceback. `waylog.cli` imports this module before all others.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Final

#: 128 and the number of the signal, as shells have it.
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)  # nothing has begun that would have to be ended


def end_quietly() -> None:
    """End the process at SIGINT, unless its parent has it ignored."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """Let SIGINT raise KeyboardInterrupt again, for a command that has something to end."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if sys.argv[0].rpartition("/")[2] in {"waylog", "cli.py"}:  # not where others import the module
    end_quietly()
