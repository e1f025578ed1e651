"""The history job's part of erasures that were started elsewhere, or while it was not running."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from functools import partial
from typing import Final

from spark.history.erase import ErasureReport, erase_history, erase_places
from spark.history.health.thread_steps import ThreadSteps
from waylog.config import ConfigError
from waylog.history.erasures import ErasureLog
from waylog.history.history_reader import HistoryReader, HistoryUnreadable, read_erased
from waylog.history.storage import Storage
from waylog.process.threads import Rounds

logger = logging.getLogger(__name__)

_WORK: Final = "erasing devices from the history"
_LOOK_S: Final = 1.0
#: Milliseconds that an erasure is left to `waylog history erase`, which rewrites the history itself
#: if it runs on the same files.
_LEFT_TO_OTHERS_MS: Final = 600_000


class ErasureApplier:
    """A task that applies the records of topic `erasure` to a history and its places."""

    def __init__(
        self,
        bootstrap_servers: str,
        out: str,
        places: str | None,
        stopping: threading.Event,
        steps: ThreadSteps,
    ) -> None:
        self._log = ErasureLog(bootstrap_servers)
        self._out = out
        self._places = places
        self._stopping = stopping
        self._steps = steps
        self._seen: dict[str, int] = {}
        # It has to wait, for example, while the history is being compacted.
        self._rounds = Rounds(
            "applying erasures", expected=(ConfigError, HistoryUnreadable, OSError, ValueError)
        )

    def begin(self) -> bool:
        """Apply all known erasures before anything is written; return False if a stop comes first.

        Raises LogForbidden, after which it may be called again, and LogUnreachable.
        """
        if not self._log.wait(stopping=self._stopping):
            return False
        self._rounds.once(self._look)
        return True

    def close(self) -> None:
        """Stop following the log of erasures, if `run` was not called."""
        self._log.close()

    def run(self) -> None:
        """Apply new erasures until the job stops; runs in a thread."""
        while not self._stopping.wait(_LOOK_S):
            self._rounds.once(self._look)
        self._log.close()

    def _look(self) -> None:
        known = self._log.erasures.known()
        if known == self._seen:
            return
        with self._steps.doing(_WORK):
            self._apply(known)

    def _apply(self, known: dict[str, int]) -> None:
        pending = self._pending(known)
        if pending:
            self._erase(pending)
        if not self._begun_elsewhere(known):
            self._seen = known

    def _pending(self, known: dict[str, int]) -> dict[str, int]:
        marked = {each.device: each for each in read_erased(Storage(self._out))}
        now = time.time_ns() // 1_000_000
        return {
            device: before
            for device, before in known.items()
            if device not in marked
            or marked[device].before < before
            or (not marked[device].rewritten and now - before > _LEFT_TO_OTHERS_MS)
        }

    def _begun_elsewhere(self, known: dict[str, int]) -> bool:
        marked = read_erased(Storage(self._out))
        return any(not each.rewritten and each.device in known for each in marked)

    def _erase(self, pending: dict[str, int]) -> None:
        report = ErasureReport(sorted(pending), max(pending.values()))
        erase_history(self._out, pending, report, partial(self._steps.advanced, _WORK))
        self._steps.advanced(_WORK)
        if self._places is not None and HistoryReader(self._out).files():
            report.places = erase_places(self._out, self._places, report.devices)
        logger.info(
            "erased elsewhere: %s; %d fixes and %d places went",
            *(counted(pending), report.rows, report.places),
        )


def counted(owners: Collection[str]) -> str:
    """Return how many devices (`user/device`) and users there are among the owners of data."""
    devices = sum("/" in each for each in owners)
    numbers = {"device": devices, "user": len(owners) - devices}
    return " and ".join(
        f"{number} {what}{'' if number == 1 else 's'}" for what, number in numbers.items() if number
    )
