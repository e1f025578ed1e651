"""The reason in what Spark raises: its errors are pages of the stack traces of two languages."""

from __future__ import annotations

import re
from typing import Final

_TEXT_MAX: Final = 500
#: The line of an exception, as Java and Python print it.
_NAMED: Final = re.compile(
    r"^(?:: |Caused by: )?(?P<package>(?:[A-Za-z_$][\w$]*\.)*)"
    r"(?P<name>[A-Z][\w$]*(?:Error|Exception|Unreachable|Unavailable|Unreadable|Forbidden)): "
    r"(?P<text>\S.*)$"
)
_OURS: Final = ("waylog.", "spark.", "geoservice.")
#: Lines that only lead to the exception that matters.
_LEADING: Final = re.compile(
    r"An error occurred while calling|Job aborted due to stage failure|Traceback \(most recent|"
    r"An exception was raised by the Python Proxy|An exception was thrown from the Python worker|"
    r"Exception thrown in awaitResult"
)
#: What Spark puts around the reason of a stream's end.
_AROUND: Final = re.compile(
    r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: |\.?(?: SQLSTATE: \w+)+$"
)
_STACK: Final = ("at ", "File ", "Traceback", "^", "JVM stacktrace", "...", "~")


def reason_of(error: BaseException) -> str:
    """Return one line that says what has gone wrong at the bottom of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = [match for line in lines if (match := _NAMED.match(line)) is not None]
    telling = [match for match in found if not _LEADING.search(match["text"])]
    for match in telling:
        if match["package"].startswith(_OURS):
            return match["text"][:_TEXT_MAX]
    if telling:
        return f"{telling[0]['name']}: {telling[0]['text']}"[:_TEXT_MAX]
    others = [line for line in lines if not line.startswith(_STACK) and not _LEADING.search(line)]
    return _AROUND.sub("", (others or [type(error).__name__])[0])[:_TEXT_MAX]


def is_of_spark(error: BaseException) -> bool:
    """Tell whether Spark, or the bridge to its JVM, has raised an error."""
    return type(error).__module__.partition(".")[0] in {"py4j", "pyspark"}
