"""Log messages as one printable line each, of bounded length.

Clients choose much of what is logged: client ids, names of topics and groups, paths, texts inside
of errors. None of it may look like a line of the log that this process has not written, control
the terminal of who reads the log, or fill the disk.
"""

from __future__ import annotations

import logging
import traceback
from types import TracebackType
from typing import Final

from waylog.observability.message_limit import MessageLimit

#: Most characters of a string in a message, and of a message.
_VALUE_MAX: Final = 1000
_MESSAGE_MAX: Final = 3000
#: Most lines of a traceback; the text of an exception may have any number of them.
_TRACEBACK_LINES_MAX: Final = 200
#: No line of a traceback begins where the lines of the log begin.
_INDENT: Final = "  "

_ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


def one_line(text: str) -> str:
    """Return a text with line breaks, and all else that is not printable, as escape sequences."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _cut(text: str, length: int) -> str:
    left_out = len(text) - length
    return text if left_out <= 0 else f"{text[:length]}... ({left_out} more characters)"


def message_of(record: logging.LogRecord) -> str:
    """Return the message of a record as one line."""
    text, values = str(record.msg), record.args
    if isinstance(values, tuple) and values:
        values = tuple(
            _cut(value, _VALUE_MAX) if isinstance(value, str) else value for value in values
        )
    if values:
        text %= values
    return one_line(_cut(text, _MESSAGE_MAX))


def exception_of(info: _ExceptionInfo) -> str:
    """Return an exception with its traceback as indented lines."""
    lines = "".join(traceback.format_exception(*info)).removesuffix("\n").split("\n")
    left_out = len(lines) - _TRACEBACK_LINES_MAX
    if left_out > 0:
        half = _TRACEBACK_LINES_MAX // 2
        lines[half:-half] = [f"... ({left_out} more lines)"]
    return "\n".join(_INDENT + one_line(_cut(line, _MESSAGE_MAX)) for line in lines)


class LineFormatter(logging.Formatter):
    """Formats each record as one line, and an exception as indented lines after it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """See Formatter."""
        record.message = message_of(record)
        left_out = getattr(record, "left_out", 0)
        if left_out:
            record.message += f" ({left_out} more like it before)"
        return super().formatMessage(record)

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802
        """See Formatter."""
        return exception_of(ei)


def configure_logging(
    line: str = "%(asctime)s %(levelname)-7s %(name)s: %(message)s",
) -> None:
    """Write the log of a process to its standard error, each record as one line, with limits."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(line, "%Y-%m-%d %H:%M:%S"))
    handler.addFilter(MessageLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
