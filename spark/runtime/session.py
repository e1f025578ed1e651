"""The one Spark session of a job: small, quiet, on loopback unless it is given a cluster."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark.runtime.jvm import find_java, private_cache
from waylog.config import ARROW_MEMORY_POOL
from waylog.sealing.sealing import ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

DEFAULT_MASTER: Final = "local[2]"
DEFAULT_DRIVER_MEMORY: Final = "768m"

_JVM_END_S: Final = 10.0
_LOOK_S: Final = 0.1

#: Characters: the path of a Unix socket has 107 at most, and what comes behind this has 64.
_SOCKET_BASE_MAX: Final = 43

#: Spark's own lines start at this level; what our job has to say goes through Python's logging.
_LOG4J: Final = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %-7p %c: %m%n%ex{short}
"""

# The serial collector and few malloc arenas keep the JVM small. The deep stack is for the regular
# expression by which Spark takes the reason out of a Python error.
_JVM_OPTIONS: Final = "-XX:+UseSerialGC -XX:-UsePerfData -Xss4m"

# The first compiler alone: a third less CPU to start, half the speed of a shuffle.
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
    """Start Spark, or return the session that runs already.

    `jars` are paths or URLs, `packages` Maven coordinates. Raises ConfigError when there is no
    Java. `planning_only`: no rows go through the JVM, so that it need not compile well.
    """
    _prepare_environment(master)
    # Py4J tells of every connection, and of every call that a stopped JVM does not answer.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in _settings(master, jars, packages).items():
        builder = builder.config(key, value)
    options = f"{_JVM_OPTIONS} {_PLANNING_ONLY}" if planning_only else _JVM_OPTIONS
    # Java takes no notice of TMPDIR.
    options += f" '-Djava.io.tmpdir={tempfile.gettempdir()}'"
    log4j = _log4j_file(private_cache(os.environ))
    builder = builder.config("spark.driver.memory", driver_memory).config(
        "spark.driver.extraJavaOptions", f"{options} -Dlog4j2.configurationFile={log4j}"
    )
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def open_session_unless(
    stopping: threading.Event, name: str, **options: Any
) -> SparkSession | None:
    """`open_session`, or None when a stop is asked for before Spark has started.

    A start takes five to thirty seconds, in which nothing is written yet that would have to be
    ended in order: the JVM is killed.
    """
    # Not a SimpleQueue: its `get` waits for ever when a signal comes at the end of the time.
    opened: queue.Queue[SparkSession | Exception] = queue.Queue()

    def start() -> None:
        try:
            opened.put(open_session(name, **options))
        except Exception as error:
            opened.put(error)

    threading.Thread(target=start, name="spark-start", daemon=True).start()
    while not stopping.is_set():
        try:
            result = opened.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
        if isinstance(result, Exception):
            raise result
        return result
    _kill_jvm()
    return None


def _kill_jvm() -> None:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    # A JVM that is not known here yet ends when its standard input does, with this process.
    if process is not None:
        process.kill()
        process.wait()


def _prepare_environment(master: str) -> None:
    os.environ["JAVA_HOME"] = str(find_java())
    if master.startswith("local"):
        # Otherwise Spark looks its machine's name up, and does not start where nobody knows it.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Otherwise workers take the first `python3` of the PATH, which has none of our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    # Workers import our packages from where this process has them.
    root = str(Path(__file__).resolve().parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])


def _settings(master: str, jars: Sequence[str], packages: Sequence[str]) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        # Hadoop sets the rights of what it creates by a mask of its own.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # A history is written for years: what Spark remembers of past batches stays small.
        "spark.sql.streaming.numRecentProgressUpdates": "5",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.sql.warehouse.dir": str(private_cache(os.environ) / "warehouse"),
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        # Any account of the machine reaches these ports: nothing is read there of whoever has not
        # the secret that Spark makes for itself, and Python's processes have none.
        settings["spark.authenticate"] = "true"
        settings["spark.network.crypto.enabled"] = "true"
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = str(_socket_folder())
    variable, pool = ARROW_MEMORY_POOL
    settings[f"spark.executorEnv.{variable}"] = os.environ.setdefault(variable, pool)
    if ENVIRONMENT in os.environ:
        settings[f"spark.executorEnv.{ENVIRONMENT}"] = os.environ[ENVIRONMENT]
    if jars:
        settings["spark.jars"] = ",".join(jars)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    return settings


def _socket_folder() -> Path:
    """A folder of this process, for its account alone; removed when it ends."""
    base = tempfile.gettempdir()
    if len(base) > _SOCKET_BASE_MAX:
        base = "/tmp"  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="waylog-spark-", dir=base))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _log4j_file(cache: Path) -> Path:
    digest = hashlib.blake2b(_LOG4J.encode(), digest_size=8).hexdigest()
    path = cache / f"log4j2-{digest}.properties"
    if not path.exists():
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text(_LOG4J, encoding="utf-8")
        aside.replace(path)
    return path


def close_session(session: SparkSession) -> None:
    """Stop Spark, and end its JVM. Never raises: the JVM may have ended before us.

    That is so when a signal went to the whole process group, as Ctrl-C does.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
    except Exception as error:
        logger.debug("Spark was not stopped: %s", error)
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    # The JVM ends when nobody can write to its standard input any more.
    process.stdin.close()
    try:
        process.wait(_JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
