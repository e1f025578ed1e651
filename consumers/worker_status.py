"""Tells the supervisor why a worker that runs is not well."""

from __future__ import annotations

import logging
import time

from waylog.process.notify import notify

logger = logging.getLogger(__name__)


class WorkerStatus:
    """Reports trouble with `STATUS=not ready: ...` of sd_notify(3). Used in one thread."""

    def __init__(self) -> None:
        self._troubles: dict[str, tuple[str, float]] = {}
        self._told: str | None = None

    def trouble(self, kind: str, reason: str, lasts_s: float) -> None:
        """Note a trouble, in place of one of the same kind; it counts for so long, or until it is
        over.
        """
        self._troubles[kind] = (reason, time.monotonic() + lasts_s)
        self._tell()

    def over(self, kind: str) -> None:
        """Note that there is no trouble of a kind any more."""
        if self._troubles.pop(kind, None) is not None:
            self._tell()

    def look(self) -> None:
        """Forget what has not been noticed for long; called from time to time."""
        if self._troubles:
            now = time.monotonic()
            self._troubles = {kind: each for kind, each in self._troubles.items() if each[1] > now}
            self._tell()

    def _tell(self) -> None:
        reason = next((reason for reason, _ in self._troubles.values()), None)
        if reason == self._told:
            return
        self._told = reason
        if reason is None:
            logger.warning("ready again")
            notify("STATUS=ready")
        else:
            logger.error("not ready: %s", reason)
            notify(f"STATUS=not ready: {reason}")
