"""Waits for a streaming query of Spark, and notices one that has ended without a word.

Spark passes on the exception that ends a query. Whatever else ends its thread, such as a
StackOverflowError while it handles an exception, is not passed on: the query then counts as one
that was stopped, or even as one that runs.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from waylog.cli import CommandError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

# Seconds that a stop waits for the end of a batch.
_BATCH_END_S: Final = 3.0

#: What Spark says of a query whose thread has come to its end in order.
_ENDED: Final = "Stopped"
#: An error of the JVM itself, after which nothing in it can be relied on.
_FATAL: Final = re.compile(
    r"\bjava\.lang\.(?:StackOverflowError|OutOfMemoryError|InternalError|UnknownError)\b"
)
_ADVICE: Final = "start the history again, nothing is lost"


class StreamDied(CommandError):
    """A query has ended in a way that Spark cannot go on from."""


def await_end(
    query: StreamingQuery,
    stopping: threading.Event,
    look: Callable[[], object],
    *,
    once: bool,
) -> None:
    """Wait until the query ends, or a stop is requested; `look` is called each second.

    Raises the query's error, and StreamDied if it has ended without one. Only with `once` may it
    end by itself.
    """
    while not stopping.is_set():
        look()
        alive = _thread_is_alive(query)
        # Wait in steps: Python's signal handlers run between them.
        if query.awaitTermination(1):
            if stopping.is_set() or (once and query.status["message"] == _ENDED):
                return
            raise StreamDied(f"Spark's stream has ended without a word; {_ADVICE}")
        # Asked before the wait: a thread that ends in order is waited for once more.
        if not alive and not stopping.is_set():
            raise StreamDied(f"the thread of Spark's stream has ended without a word; {_ADVICE}")


def check_fatal(error: Exception) -> None:
    """Raise StreamDied for an error of the JVM itself."""
    found = _FATAL.search(str(error))
    if found is not None:
        raise StreamDied(f"Spark's stream has ended with {found[0]}; {_ADVICE}") from error


def stop_query(query: StreamingQuery) -> None:
    """Stop the query between two batches, so that a restart has nothing to repeat."""
    try:
        deadline = time.monotonic() + _BATCH_END_S
        while query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()
    except Exception as error:
        # A signal to the whole process group has ended the JVM already: nothing is left to stop.
        logger.debug("the stream was not stopped: %s", error)


def _thread_is_alive(query: StreamingQuery) -> bool:
    """Tell whether the thread that runs the query's batches lives; True where Spark hides it."""
    from py4j.protocol import Py4JError

    try:
        thread = query._jsq.streamingQuery().queryExecutionThread()
        return bool(thread.isAlive())
    except (AttributeError, TypeError, Py4JError):
        return True
