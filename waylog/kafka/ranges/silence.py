"""How long a reader waits for a log from which nothing comes, and what it says then."""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

from waylog.kafka.clients import LogUnreachable
from waylog.kafka.reach import silence_reason

#: Seconds without a record after which a reader gives up.
SILENCE_MAX_S: Final = 60.0


class Silence(Protocol):
    """Decides when a reader gives up."""

    def ended(self) -> None:
        """Note that something has come."""

    def check(self, place: str) -> None:
        """Raise if nothing has come for too long; `place` is where the reader is."""


class BoundedSilence:
    """Gives up after a time, or once a stop is asked for, with LogUnreachable."""

    def __init__(
        self,
        bootstrap_servers: str,
        stopping: threading.Event | None = None,
        *,
        seconds: float = SILENCE_MAX_S,
    ) -> None:
        self._servers = bootstrap_servers
        self._stopping = stopping
        self._seconds = seconds
        self._since = time.monotonic()

    def ended(self) -> None:
        """See Silence."""
        self._since = time.monotonic()

    def check(self, place: str) -> None:
        """See Silence."""
        if self._stopping is not None and self._stopping.is_set():
            raise LogUnreachable("stopped while nothing comes from the log")
        if time.monotonic() - self._since > self._seconds:
            why = silence_reason(self._servers)
            raise LogUnreachable(
                f"nothing came from {place} for {self._seconds:.0f} s"
                + ("" if why is None else f": {why}")
            )
