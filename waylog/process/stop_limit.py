"""Ends a process whose stop takes too long."""

from __future__ import annotations

import logging
import threading
from typing import Final

from waylog.process.threads import end_process

logger = logging.getLogger(__name__)

#: Seconds that a stop may take (docs/deploy.md); the supervisor kills the process a little later.
STOP_MAX_S: Final = 65.0
THREAD_NAME: Final = "limit of the stop"
#: The same after a failure: what a stop waits for may be what has failed.
FAILED_STOP_MAX_S: Final = 5.0


class StopLimit:
    """Ends the process when its stop takes too long; does nothing unless `armed`.

    What a stop waits for (requests, the log, threads that ask it) has limits of its own, whose sum
    is more than a supervisor or an operator waits. A stop that is cut off loses nothing that was
    acknowledged: it is as if the process had been killed.
    """

    armed = False

    def begin(self, limit_s: float | None = None) -> None:
        """Count from now, `STOP_MAX_S` without a limit.

        It counts in a thread, since other threads may outlast the event loop.
        """
        if limit_s is None:
            limit_s = STOP_MAX_S
        if self.armed:
            timer = threading.Timer(limit_s, self._end, (limit_s,))
            timer.name = THREAD_NAME
            timer.daemon = True
            timer.start()

    def _end(self, limit_s: float) -> None:
        logger.error("not stopped within %.0f s: the process ends without waiting", limit_s)
        end_process()
