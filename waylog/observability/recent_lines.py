"""The last lines of a process's log, for administrators."""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from typing import Final

import msgspec

from waylog.observability.log_lines import exception_of, message_of

LINES_MAX: Final = 500
_EXCEPTION_CHARACTERS_MAX: Final = 4_000
#: No secret is logged; were one, it would not be shown. Tokens begin so, or follow these words.
_SECRETS: Final = re.compile(
    r"\bwl_[\w-]+|(?i:(?<=bearer )|(?<=basic )|(?<=password=)|(?<=token=)|(?<=secret=))[^\s\"'&,;]+"
)


class RecentLine(msgspec.Struct, frozen=True):
    """A line of the log. Numbers count from the start of the process."""

    number: int
    time: int  # ms since 1970
    level: str
    logger: str
    message: str
    exception: str = ""


class RecentLines(logging.Handler):
    """Keeps the newest lines in memory."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[RecentLine] = deque(maxlen=lines_max)
        self._number = 0
        self._adding = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line; never raises."""
        try:
            message = without_secrets(message_of(record))
            exception = ""
            if record.exc_info:
                text = exception_of(record.exc_info)[:_EXCEPTION_CHARACTERS_MAX]
                exception = without_secrets(text)
            with self._adding:
                self._number += 1
                self._lines.append(
                    RecentLine(
                        self._number,
                        int(record.created * 1000),
                        record.levelname,
                        record.name,
                        message,
                        exception,
                    )
                )
        except Exception:
            self.handleError(record)

    def after(self, number: int) -> list[RecentLine]:
        """Return the lines behind a number that are still kept, oldest first."""
        with self._adding:
            return [each for each in self._lines if each.number > number]


def without_secrets(text: str) -> str:
    """Return a text with asterisks for what looks like a token or a password."""
    return _SECRETS.sub("***", text)
