"""The only Spark session of a job: small, quiet, and on loopback unless a cluster is given."""

from __future__ import annotations

import hashlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark.runtime.jvm import find_java, private_cache
from spark.runtime.masters import check_master
from spark.runtime.socket_folder import socket_folder
from spark.runtime.watched import watched
from waylog.cli import CommandError
from waylog.config import ARROW_MEMORY_POOL, ConfigError
from waylog.sealing.sealing import ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

DEFAULT_MASTER: Final = "local[2]"
DEFAULT_DRIVER_MEMORY: Final = "768m"

#: How long Spark waits for its own processes where there is little processor time: for answers of
#: executors, and for Python's workers to say who they are. How long it waits for them to start is
#: fixed in Spark 4.3: 10 s for the one that plans a stream, 60 s for the next one of a daemon, and
#: for ever for the daemon itself.
NETWORK_TIMEOUT: Final = "600s"
WORKER_TIMEOUT: Final = "120s"

_WORKERS_END_S: Final = 1.0
_JVM_END_S: Final = 10.0
_LOOK_S: Final = 0.1

#: Only errors of Spark are logged here; our job logs through Python.
_LOG4J: Final = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %-7p %c: %m%n%ex{short}
"""

# The serial collector and few malloc arenas (MALLOC_ARENA_MAX) keep the JVM small. The deep stack
# is for the regular expression by which Spark extracts the reason from a Python error.
_JVM_OPTIONS: Final = "-XX:+UseSerialGC -XX:-UsePerfData -Xss4m"

# Only the first compiler: it saves a third of the CPU time of the start, and halves the speed of a
# shuffle.
_PLANNING_ONLY: Final = "-XX:TieredStopAtLevel=1"


def open_session(
    name: str,
    *,
    master: str = DEFAULT_MASTER,
    driver_memory: str = DEFAULT_DRIVER_MEMORY,
    jars: Sequence[str] = (),
    packages: Sequence[str] = (),
    planning_only: bool = False,
) -> SparkSession:
    """Start Spark, or return the running session.

    `jars` are paths or URLs, `packages` Maven coordinates. With `planning_only`, no rows pass
    through the JVM, so that it need not optimise its code. Raises ConfigError when there is no
    Java, and if Spark cannot start; CommandError for a master that does not answer, and if Spark
    may start the next time.
    """
    check_master(master)
    _prepare_environment(master)
    # Py4J logs every connection, and every call that a stopped JVM does not answer.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in _settings(master, jars, packages).items():
        builder = builder.config(key, value)
    options = f"{_JVM_OPTIONS} {_PLANNING_ONLY}" if planning_only else _JVM_OPTIONS
    # Java ignores TMPDIR.
    options += f" '-Djava.io.tmpdir={tempfile.gettempdir()}'"
    log4j = _log4j_file(private_cache(os.environ))
    builder = builder.config("spark.driver.memory", driver_memory).config(
        "spark.driver.extraJavaOptions", f"{options} -Dlog4j2.configurationFile={log4j}"
    )
    try:
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        logger.debug("Spark does not start", exc_info=True)
        message = f"Spark does not start with --master {master}: {_reason(error)}"
        may_pass = not master.startswith("local") or _may_pass(error)
        raise (CommandError if may_pass else ConfigError)(message) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _may_pass(error: Exception) -> bool:
    """Return whether Spark may start the next time.

    It may where a signal has ended its JVM, as for want of memory. How a JVM has ended that PySpark
    had not heard of yet nobody knows: a supervisor tries again.
    """
    from pyspark.errors import PySparkException

    unheard = isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"
    return unheard or (jvm_end() or 0) < 0


def _reason(error: Exception) -> str:
    """Return the first line of what has gone wrong at the bottom of it."""
    cause = getattr(error, "java_exception", None)
    # Py4J asks the JVM for each of them, which may have ended.
    with suppress(Exception):
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        if cause is not None:
            return str(cause.toString()).splitlines()[0]
    status = jvm_end()
    if status is not None:
        return f"its Java process has ended with status {status}"
    return str(error).splitlines()[0]


class _Stopped(Exception):
    """A stop was requested before Spark had started."""


def open_session_unless(
    stopping: threading.Event, name: str, **options: Any
) -> SparkSession | None:
    """Call `open_session`, but return None when a stop is requested before Spark has started.

    A start takes five to thirty seconds. Nothing has been written by then, so the JVM can be
    killed.
    """

    def look() -> None:
        if stopping.is_set():
            raise _Stopped

    try:
        return watched("spark-start", partial(open_session, name, **options), look, _LOOK_S)
    except _Stopped:
        _kill_jvm()
        return None


def jvm_end() -> int | None:
    """Return the exit status of Spark's JVM; None while it runs, or where there is none."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return None if process is None else process.poll()


def _kill_jvm() -> None:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    # A JVM that is not known here yet ends with this process, which closes its standard input.
    if process is not None:
        process.kill()
        process.wait()


def _prepare_environment(master: str) -> None:
    os.environ["JAVA_HOME"] = str(find_java())
    if master.startswith("local"):
        # Otherwise Spark resolves the machine's host name, and does not start where that fails.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Otherwise workers use the first `python3` of the PATH, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers import our packages from the same path as this process.
    root = str(Path(__file__).resolve().parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])


def _settings(master: str, jars: Sequence[str], packages: Sequence[str]) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        # Hadoop applies a umask of its own to the files that it creates.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.network.timeout": NETWORK_TIMEOUT,
        "spark.python.authenticate.socketTimeout": WORKER_TIMEOUT,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A history is written for years: limit what Spark remembers of past batches.
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.sql.warehouse.dir": str(private_cache(os.environ) / "warehouse"),
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        # Any account of the machine can connect to these ports. The JVM ignores connections without
        # the secret that Spark generates; Python's processes use Unix sockets instead of ports.
        settings["spark.authenticate"] = "true"
        settings["spark.network.crypto.enabled"] = "true"
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = str(socket_folder())
    variable, pool = ARROW_MEMORY_POOL
    settings[f"spark.executorEnv.{variable}"] = os.environ.setdefault(variable, pool)
    if ENVIRONMENT in os.environ:
        settings[f"spark.executorEnv.{ENVIRONMENT}"] = os.environ[ENVIRONMENT]
    if jars:
        settings["spark.jars"] = ",".join(jars)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    return settings


def _log4j_file(cache: Path) -> Path:
    digest = hashlib.blake2b(_LOG4J.encode(), digest_size=8).hexdigest()
    path = cache / f"log4j2-{digest}.properties"
    if not path.exists():
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text(_LOG4J, encoding="utf-8")
        aside.replace(path)
    return path


def _end_python_workers(java: subprocess.Popen[bytes] | None) -> None:
    """End Spark's idle Python workers before the JVM closes their sockets.

    They would answer the end of their input with an error, on a socket that is closed by then, and
    each would print the traceback of a BrokenPipeError. On SIGTERM pyspark's daemons end themselves
    and their workers without a word, and so does the worker of a streaming source.
    """
    if java is None:
        return
    workers = []
    for children in Path(f"/proc/{java.pid}/task").glob("*/children"):
        try:
            pids = [int(word) for word in children.read_text().split()]
            workers += [pid for pid in pids if _is_python_worker(pid)]
        except OSError:
            continue  # the thread has ended
    for pid in workers:
        with suppress(OSError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _WORKERS_END_S
    while any(map(_is_python_worker, workers)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def _is_python_worker(pid: int) -> bool:
    try:
        # The daemons, and the worker of a streaming source, which has none.
        return b"\0pyspark." in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def kill_session(session: SparkSession) -> None:
    """End Spark without asking it, as it may hang. Never raises."""
    from pyspark import SparkContext

    _end_python_workers(getattr(SparkContext._gateway, "proc", None))
    _kill_jvm()
    close_session(session)


def close_session(session: SparkSession) -> None:
    """Stop Spark and its JVM. Never raises: the JVM may have ended already.

    That happens when a signal goes to the whole process group, as with Ctrl-C.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    _end_python_workers(getattr(gateway, "proc", None))
    try:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
    except Exception as error:
        logger.debug("Spark was not stopped: %s", error)
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    # The JVM ends when its standard input is closed.
    process.stdin.close()
    try:
        process.wait(_JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
