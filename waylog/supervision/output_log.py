"""The rotating log file for the output of a supervised process."""

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
    """A log file that drops lines it cannot write; it reports that once, not for each line."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
        self.path = path
        self._trouble = StorageTrouble(path.parent, logger)
        self._has_failed = False

    def write(self, line: str) -> None:
        """Append a line; raises nothing for errors of the disk."""
        self._has_failed = False
        self.emit(logging.LogRecord("", logging.INFO, "", 0, line, None, None))
        if not self._has_failed:
            self._trouble.succeeded()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Handle an error of `emit`; logging calls it inside of the exception's handler."""
        self._has_failed = True
        error = sys.exception()
        if isinstance(error, OSError):
            self._trouble.failed(error)
        else:
            logger.error("%s: a line cannot be written", self.path, exc_info=error)
        # If closing has failed during a rotation, the next line needs a new stream.
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.close()

    def close(self) -> None:
        """Close the file, even if its last bytes cannot be written."""
        try:
            super().close()
        except OSError as error:
            self._trouble.failed(error)
