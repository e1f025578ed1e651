"""What a history job says of itself while it runs."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from spark.history.health.job_status import JobStatus
from spark.history.health.thread_steps import ThreadSteps
from tests.ports import reserved_ports


@pytest.fixture(autouse=True)
def _supervised(supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())


def test_a_log_that_does_not_answer_and_a_failed_stream_are_both_told(
    tmp_path: Path, supervisor: socket.socket
) -> None:
    (port,) = reserved_ports(1)
    status = JobStatus(f"127.0.0.1:{port}", [tmp_path], ThreadSteps(), lambda: None)
    stopping = threading.Event()
    watch = threading.Thread(target=status.watch, args=(stopping,))
    watch.start()
    try:
        status.failed("the stream has failed")
        assert supervisor.recv(1000) == b"STATUS=not ready: the stream has failed"
        both = supervisor.recv(1000)
        assert both.startswith(
            b"STATUS=not ready: the stream has failed; nothing heard from the log for "
        )
        status.committed()
        assert supervisor.recv(1000) == b"STATUS=not ready: " + both.partition(b"; ")[2]
    finally:
        stopping.set()
        watch.join(60)
    assert not watch.is_alive()


def test_a_folder_that_cannot_be_asked_is_told_until_it_can(
    tmp_path: Path, supervisor: socket.socket
) -> None:
    (port,) = reserved_ports(1)
    folder = tmp_path / "history"
    status = JobStatus(f"127.0.0.1:{port}", [folder], ThreadSteps(), lambda: None)
    stopping = threading.Event()
    watch = threading.Thread(target=status.watch, args=(stopping,))
    watch.start()
    try:
        told = f"STATUS=not ready: {folder} cannot be written: ".encode()
        assert supervisor.recv(1000).startswith(told)
        folder.mkdir()
        while supervisor.recv(1000).startswith(told):
            pass
    finally:
        stopping.set()
        watch.join(60)
