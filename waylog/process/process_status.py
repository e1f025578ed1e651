"""Tells the supervisor why a process that runs is not well."""

from __future__ import annotations

import logging
import math
import threading
import time

from waylog.process.notify import notify

logger = logging.getLogger(__name__)


class ProcessStatus:
    """Reports the troubles of a process with `STATUS=not ready: ...` of sd_notify(3).

    A process has one status: with two reporters, the "ready" of one would hide the trouble of the
    other. So each part that may be in trouble gets the same object, and a kind of its own.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The reason and the end (monotonic, seconds) of each kind, in the order of their begin.
        self._troubles: dict[str, tuple[str, float]] = {}
        self._told: str | None = None

    def trouble(self, kind: str, reason: str, lasts_s: float = math.inf) -> None:
        """Note a trouble, in place of one of the same kind; it counts for so long, or until it is
        over.
        """
        with self._lock:
            self._troubles[kind] = (reason, time.monotonic() + lasts_s)
            self._tell()

    def over(self, kind: str) -> None:
        """Note that there is no trouble of a kind any more."""
        if kind not in self._troubles:  # as in nearly every round of a worker's loop
            return
        with self._lock:
            if self._troubles.pop(kind, None) is not None:
                self._tell()

    def look(self) -> None:
        """Forget what has not been noticed for long; called from time to time."""
        if not self._troubles:
            return
        with self._lock:
            now = time.monotonic()
            gone = [kind for kind, (_, end) in self._troubles.items() if end <= now]
            for kind in gone:
                del self._troubles[kind]
            if gone:
                self._tell()

    @property
    def told(self) -> str | None:
        """The troubles as they were told last; None if there are none."""
        return self._told

    def __contains__(self, kind: str) -> bool:
        return kind in self._troubles

    def _tell(self) -> None:
        reasons = "; ".join(reason for reason, _ in self._troubles.values()) or None
        if reasons == self._told:
            return
        told, self._told = self._told, reasons
        if reasons is None:
            logger.warning("ready again; it was: %s", told)
            notify("STATUS=ready")
        else:
            logger.error("not ready: %s", reasons)
            notify(f"STATUS=not ready: {reasons}")
