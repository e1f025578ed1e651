"""The log of erasures, which all sink tasks of a worker follow together."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from waylog.history.erasures import ErasureLog


class WorkerErasures:
    """Follows topic `erasure` from the first sink task on."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, Any]) -> None:
        """`properties` are librdkafka's, of the worker's own clients."""
        self._bootstrap_servers: Final = bootstrap_servers
        self._properties: Final = properties
        self._lock: Final = threading.Lock()
        self._log: ErasureLog | None = None

    def follow(self) -> ErasureLog:
        """Return the log, which is followed from now on; may be called in any thread."""
        with self._lock:
            if self._log is None:
                self._log = ErasureLog(self._bootstrap_servers, properties=self._properties)
            return self._log

    def close(self) -> None:
        """Stop following it."""
        with self._lock:
            log, self._log = self._log, None
        if log is not None:
            log.close()
