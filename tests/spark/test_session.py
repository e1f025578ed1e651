"""What a session of Spark opens to other accounts of the machine."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: A serialised string: what stands for any object that a stranger may choose.
_OBJECT = b"\xac\xed\0\5t\0\7mallory"


def _text(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def _request(port: int, endpoint: bytes) -> bytes:
    """Spark's RPC: a frame with a request (type 3) that names its sender and one of the driver's
    endpoints, and has an object for it.
    """
    body = b"\0\1" + _text(b"127.0.0.1") + struct.pack(">i", port) + _text(endpoint) + _OBJECT
    message = struct.pack(">bqi", 3, 7, len(body)) + body
    return struct.pack(">q", 8 + len(message)) + message


def _answer(port: int, request: bytes) -> bytes:
    """What comes first; nothing where the connection is closed without a word."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request + b"\n")  # Py4J waits for the end of a line
        try:
            return connection.recv(65536)
        except ConnectionResetError:
            return b""


def _processes() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def _listening(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections("tcp") if each.status == "LISTEN"}


def test_spark_takes_nothing_from_strangers(session: SparkSession) -> None:
    """Driver and block manager ask for a secret before they look at an object."""
    assert session.range(10).count() == 10
    (java,) = (each for each in _processes() if each.name() == "java")
    answers = {
        endpoint: _answer(port, _request(port, endpoint))
        for port in _listening(java)
        for endpoint in (b"BlockManagerMaster", b"HeartbeatReceiver")
    }
    assert any(b"Expected SaslMessage" in each for each in answers.values())
    for answer in answers.values():
        assert b"rpc.netty" not in answer
        assert b"ClassCastException" not in answer


def test_pythons_processes_of_spark_listen_where_no_other_account_comes(
    session: SparkSession,
) -> None:
    doubled = session.sparkContext.parallelize([1, 2, 3]).map(lambda each: 2 * each).collect()
    assert doubled == [2, 4, 6]
    python = [each for each in _processes() if "pyspark" in " ".join(each.cmdline())]
    python = [each for each in python if each.name() != "java"]
    assert python
    assert [each for each in python if _listening(each)] == []
    folder = session.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert folder is not None
    assert Path(folder).stat().st_mode & 0o077 == 0
