"""The signals by which supervisors and Ctrl-C have a process stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(stop: Callable[[], object]) -> None:
    """Have `stop` called by each of them, in a process without an event loop."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: stop())
