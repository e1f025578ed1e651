"""pyspark's daemon, which forks the Python workers of Spark, without tracebacks at every stop.

At a stop the JVM closes the sockets of its workers. One that is about to flush its last answer then
gets BrokenPipeError, which pyspark prints as a traceback although nothing is wrong: the JVM has
closed the socket itself, and reports a task that fails by other means. Spark starts this module in
place of `pyspark.daemon` (`spark.python.daemon.module`).
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker

#: Ends the forked process; pyspark goes on with a worker that returned 0.
_CLOSED = 1


def _run_worker(connection: socket.socket, authenticated: bool) -> int:
    try:
        return int(_worker(connection, authenticated))
    except BrokenPipeError:
        return _CLOSED


if __name__ == "__main__":
    daemon.worker = _run_worker
    daemon.manager()
