"""Parts of a gateway that are not ready, and why: for `/readyz`, the supervisor and the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from waylog.history.job_report import read_report
from waylog.kafka.topics import LOCATION
from waylog.observability.telemetry import now_ms
from waylog.process.notify import notify
from waylog.process.storage_trouble import room_trouble

logger = logging.getLogger(__name__)

#: Seconds of silence after which a reader of the log counts as cut off. A reader hears from the log
#: twice a second even if there are no records, and from a restarted broker after a few seconds.
SILENT_S: Final = 6.0
WATCH_S: Final = 1.0
#: Seconds that a request waits for a log that is known not to answer.
HOPELESS_S: Final = 2.0
_NEEDED_TO_APPEND: Final = frozenset({"appending", LOCATION})
#: With less free space SQLite and the logs can no longer be written.
ROOM_BYTES_MIN: Final = 256 * 1024

#: Returns what is wrong with a part, or None.
Ask = Callable[[], str | None]


class Reader(Protocol):
    """A reader of the log."""

    heard_at: float

    @property
    def trouble(self) -> str | None: ...


class Readiness:
    """Checks the parts of the process."""

    def __init__(self) -> None:
        self._parts: dict[str, Ask] = {}
        self._others: dict[str, Ask] = {}
        #: Parts reported as not ready since everything was ready.
        self._told: set[str] = set()
        self._cannot_append = False

    def add(self, part: str, ask: Ask) -> None:
        """Add a part to be checked."""
        self._parts[part] = ask

    def add_other(self, part: str, ask: Ask) -> None:
        """Add something that belongs to the platform, and that requests do not need."""
        self._others[part] = ask

    def others(self) -> dict[str, str]:
        """Return the reasons of what is in trouble and does not keep requests from being served."""
        answers = {part: ask() for part, ask in self._others.items()}
        return {part: reason for part, reason in answers.items() if reason is not None}

    def problems(self) -> dict[str, str]:
        """Return the reason for each part that is not ready; empty if all are ready."""
        answers = {part: ask() for part, ask in self._parts.items()}
        return {part: reason for part, reason in answers.items() if reason is not None}

    def states(self) -> dict[str, str | None]:
        """Return all parts with what is wrong, None for those in order; what is beside them too."""
        return {part: ask() for part, ask in (self._parts | self._others).items()}

    def append_timeout_s(self, ordinary_s: float) -> float:
        """Return the seconds that a request waits for its append: few if it is known to fail."""
        return min(ordinary_s, HOPELESS_S) if self._cannot_append else ordinary_s

    async def look(self) -> None:
        """Log what has changed since the last call, and notify the supervisor."""
        problems = self.problems()
        self._cannot_append = not _NEEDED_TO_APPEND.isdisjoint(problems)
        if not problems:
            if self._told:
                self._told.clear()
                logger.warning("ready again")
                notify("STATUS=ready")
        elif not problems.keys() <= self._told:
            # While one part stays not ready, another that comes and goes is reported once.
            self._told.update(problems)
            told = "; ".join(f"{part}: {reason}" for part, reason in problems.items())
            logger.error("not ready: %s", told)
            notify(f"STATUS=not ready: {told}")


def reader_trouble(reader: Reader, now: Callable[[], float] = time.monotonic) -> Ask:
    """Return a check whether a reader has heard from the log recently."""

    def ask() -> str | None:
        silent_s = now() - reader.heard_at
        if silent_s <= SILENT_S:
            return None
        why = "" if reader.trouble is None else f": {reader.trouble}"
        return f"nothing heard from the log for {silent_s:.0f} s{why}"

    return ask


def storage_trouble(folder: Path, *, may_be_missing: bool = False) -> Ask:
    """Return a check whether a folder has free space."""

    def ask() -> str | None:
        if may_be_missing and not folder.exists():
            return None
        return room_trouble(folder, ROOM_BYTES_MIN)

    return ask


def history_trouble(folder: Path, now: Callable[[], int] = now_ms) -> Ask:
    """Return a check whether a history has room, and whether its job says that it is well.

    A folder without a report has no job, or one of an earlier version.
    """
    room = storage_trouble(folder, may_be_missing=True)

    def ask() -> str | None:
        report = read_report(folder)
        return room() or (None if report is None else report.problem(now()))

    return ask
