"""The rotating file with what a supervised process prints."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
from pathlib import Path
from typing import Final

from waylog.process.storage_trouble import StorageTrouble

logger = logging.getLogger(__name__)

LOG_BYTES: Final = 10 * 1024 * 1024
LOG_FILES: Final = 3


class OutputLog(logging.handlers.RotatingFileHandler):
    """Lines that cannot be written are dropped, which is said once and not for each line."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
        self.path = path
        self._trouble = StorageTrouble(path.parent, logger)
        self._has_failed = False

    def write(self, line: str) -> None:
        """Append a line; never raises for the disk's sake."""
        self._has_failed = False
        self.emit(logging.LogRecord("", logging.INFO, "", 0, line, None, None))
        if not self._has_failed:
            self._trouble.succeeded()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """As logging calls it where `emit` has failed, inside of the exception's handler."""
        self._has_failed = True
        error = sys.exception()
        if isinstance(error, OSError):
            self._trouble.failed(error)
        else:
            logger.error("%s: a line cannot be written", self.path, exc_info=error)
        # A stream whose close has failed half-way in a rotation is of no use to the next line.
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()

    def close(self) -> None:
        """Give back the file, also where its last bytes cannot be written."""
        try:
            super().close()
        except OSError as error:
            self._trouble.failed(error)
