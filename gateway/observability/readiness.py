"""Parts of a gateway that are not ready, and why: for `/readyz`, the supervisor and the log."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from waylog.kafka.topics import LOCATION
from waylog.process.notify import notify
from waylog.process.storage_trouble import describe

logger = logging.getLogger(__name__)

#: A reader of the log hears of it twice a second, though there be nothing new; of a broker that is
#: started again after a few seconds.
SILENT_S: Final = 6.0
WATCH_S: Final = 1.0
#: A request waits so long for a log that is known not to answer.
HOPELESS_S: Final = 2.0
_NEEDED_TO_APPEND: Final = frozenset({"appending", LOCATION})
#: With less room SQLite and the logs cannot be written any more.
ROOM_BYTES_MIN: Final = 256 * 1024

#: Says what is wrong with a part; None where nothing is.
Ask = Callable[[], str | None]


class Reader(Protocol):
    """A reader of the log."""

    heard_at: float


class Readiness:
    """Asks each part of the process."""

    def __init__(self) -> None:
        self._parts: dict[str, Ask] = {}
        #: What has been said since all was well.
        self._told: set[str] = set()
        self._cannot_append = False

    def add(self, part: str, ask: Ask) -> None:
        """Have a part asked from now on."""
        self._parts[part] = ask

    def problems(self) -> dict[str, str]:
        """Reasons by part that is not ready; empty where everything is."""
        answers = {part: ask() for part, ask in self._parts.items()}
        return {part: reason for part, reason in answers.items() if reason is not None}

    def append_timeout_s(self, ordinary_s: float) -> float:
        """Seconds that a request waits for its append: few where it is known to fail."""
        return min(ordinary_s, HOPELESS_S) if self._cannot_append else ordinary_s

    async def look(self) -> None:
        """Say what has changed since the last time."""
        problems = self.problems()
        self._cannot_append = not _NEEDED_TO_APPEND.isdisjoint(problems)
        if not problems:
            if self._told:
                self._told.clear()
                logger.warning("ready again")
                notify("STATUS=ready")
        elif not problems.keys() <= self._told:
            # A part that comes and goes, while another stays, is said once.
            self._told.update(problems)
            told = "; ".join(f"{part}: {reason}" for part, reason in problems.items())
            logger.error("not ready: %s", told)
            notify(f"STATUS=not ready: {told}")


def reader_trouble(reader: Reader, now: Callable[[], float] = time.monotonic) -> Ask:
    """Asks whether a reader has heard from the log recently."""

    def ask() -> str | None:
        silent_s = now() - reader.heard_at
        return f"nothing heard from the log for {silent_s:.0f} s" if silent_s > SILENT_S else None

    return ask


def storage_trouble(folder: Path) -> Ask:
    """Asks whether there is room in a folder."""

    def ask() -> str | None:
        try:
            system = os.statvfs(folder)
        except OSError as error:
            return describe(folder, error)
        if system.f_bavail * system.f_frsize >= ROOM_BYTES_MIN:
            return None
        return describe(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    return ask
