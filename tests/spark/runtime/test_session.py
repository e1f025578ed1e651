"""The protection of a Spark session against other accounts of the machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from spark.runtime.session import open_session_unless
from waylog.config import ConfigError
from waylog.sealing.sealing import ENVIRONMENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: A serialised string, which stands for any object that an attacker may send.
_OBJECT = b"\xac\xed\0\5t\0\7mallory"


#: A job that prints where its workers run, and with which Python.
_JOB: Final = """
import json, os, sys, tempfile

from spark.runtime.session import close_session, open_session


def look(_):
    import waylog

    return waylog.__file__, sys.executable


session = open_session("a job")
settings = session.sparkContext.getConf()
report = {
    "workers": session.sparkContext.parallelize([0], 1).map(look).collect()[0],
    "sockets": settings.get("spark.python.unix.domain.socket.dir"),
    "key": settings.get("spark.executorEnv." + sys.argv[1]),
    "java": [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("blockmgr-")],
}
close_session(session)
print(json.dumps(report))
"""


def _text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _request(port: int, endpoint: bytes) -> bytes:
    """Return a frame of Spark's RPC.

    It is a request (type 3) that names its sender and one of the driver's endpoints, and contains
    an object for it.
    """
    body = b"\0\1" + _text(b"127.0.0.1") + struct.pack(">i", port) + _text(endpoint) + _OBJECT
    message = struct.pack(">bqi", 3, 7, len(body)) + body
    return struct.pack(">q", 8 + len(message)) + message


def _answer(port: int, request: bytes) -> bytes:
    """Return the answer: a frame, or Py4J's line; empty if the connection is just closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request + b"\n")  # Py4J waits for the end of a line
        received = b""
        try:
            while len(received) < 8 or (
                received[:1] == b"\0" and len(received) < int.from_bytes(received[:8], "big")
            ):
                part = connection.recv(65536)
                if not part or (received + part)[:1] == b"!":
                    return received + part
                received += part
        except ConnectionResetError:
            pass
        return received


def _listening(*, java: bool) -> dict[int, set[tuple[str, int]]]:
    """Return the listening addresses by process id, of the JVM or of Spark's Python processes."""
    found: dict[int, set[tuple[str, int]]] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process may have ended
            is_java = process.name() == "java"
            if is_java == java and "pyspark" in " ".join(process.cmdline()):
                connections = process.net_connections("tcp")
                found[process.pid] = {
                    (each.laddr.ip, each.laddr.port)
                    for each in connections
                    if each.status == "LISTEN"
                }
    return found


def test_spark_takes_nothing_from_strangers(session: SparkSession) -> None:
    """Driver and block manager require a secret before they deserialise an object."""
    assert session.range(10).count() == 10
    (places,) = _listening(java=True).values()
    assert {host.removeprefix("::ffff:") for host, _ in places} <= {"127.0.0.1", "::1"}
    ports = {port for _, port in places}
    answers = {
        (port, endpoint): _answer(port, _request(port, endpoint))
        for port in ports
        for endpoint in (b"BlockManagerMaster", b"HeartbeatReceiver")
    }
    asked = {port for (port, _), answer in answers.items() if b"Expected SaslMessage" in answer}
    assert len(asked) == 2
    for answer in answers.values():
        assert b"rpc.netty" not in answer
        assert b"ClassCastException" not in answer


def test_pythons_processes_of_spark_listen_where_no_other_account_comes(
    session: SparkSession,
) -> None:
    doubled = session.sparkContext.parallelize([1, 2, 3]).map(lambda each: 2 * each).collect()
    assert doubled == [2, 4, 6]
    python = _listening(java=False)
    assert python
    assert {pid: places for pid, places in python.items() if places} == {}
    folder = session.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert folder is not None
    assert Path(folder).stat().st_mode & 0o077 == 0


def test_what_spark_writes_is_for_its_account_alone(session: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "written"
    rows = session.range(10).selectExpr("id", "id % 3 AS part")
    rows.write.partitionBy("part").parquet(str(folder))
    written = [folder, *folder.rglob("*")]
    assert len(written) > 6
    assert {path.stat().st_mode & 0o077 for path in written} == {0}


def test_a_start_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYLOG_JAVA", str(tmp_path))
    with pytest.raises(ConfigError, match="WAYLOG_JAVA"):
        open_session_unless(threading.Event(), "no java")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_runs_by_its_own_python_and_packages_and_leaves_nothing(tmp_path: Path) -> None:
    """This works also if the PATH has another Python, and with a long temporary path."""
    root = Path(__file__).resolve().parents[3]
    for package in ("spark", "waylog"):
        shutil.copytree(
            root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    job = tmp_path / "job.py"
    job.write_text(_JOB)
    temporary = tmp_path / ("of-a-long-name" * 5)
    temporary.mkdir()
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        **{"PATH": f"{other.parent}:{os.environ['PATH']}", "TMPDIR": str(temporary)},
        **{ENVIRONMENT: "/a/key"},
    }
    done = subprocess.run(
        [sys.executable, str(job), ENVIRONMENT],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["workers"] == [str(tmp_path / "waylog" / "__init__.py"), sys.executable]
    assert report["key"] == "/a/key"
    assert report["java"]
    assert not Path(report["sockets"]).exists()
