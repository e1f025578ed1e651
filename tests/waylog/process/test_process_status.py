"""The one status of a process whose parts are in trouble."""

from __future__ import annotations

import socket

import pytest

from waylog.process.broker_liveness import SILENT_S, BrokerLiveness
from waylog.process.process_status import ProcessStatus


@pytest.fixture(autouse=True)
def _supervised(supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())


def heard(supervisor: socket.socket) -> list[str]:
    """Return the states that have come."""
    supervisor.setblocking(False)
    states = []
    try:
        while True:
            states.append(supervisor.recv(1000).decode().removeprefix("STATUS="))
    except BlockingIOError:
        return states


def test_a_process_is_ready_when_no_kind_of_trouble_is_left(
    supervisor: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    status = ProcessStatus()
    status.trouble("disk", "no room left")
    status.trouble("disk", "no room left")
    status.trouble("log", "no log")
    status.over("disk")
    status.over("disk")
    status.trouble("log", "still no log")
    status.over("log")
    status.over("stream")
    expected = ["no room left", "no room left; no log", "no log", "still no log"]
    assert heard(supervisor) == [*(f"not ready: {each}" for each in expected), "ready"]
    assert caplog.messages[-1] == "ready again; it was: still no log"


def test_a_trouble_that_is_not_noticed_again_ends(supervisor: socket.socket) -> None:
    status = ProcessStatus()
    status.trouble("disk", "no room left")
    status.trouble("letters", "refused", lasts_s=0.0)
    assert "letters" in status
    status.look()
    assert "letters" not in status
    status.look()
    assert heard(supervisor) == [
        "not ready: no room left",
        "not ready: no room left; refused",
        "not ready: no room left",
    ]


def test_a_log_that_answers_again_hides_no_other_trouble(
    supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("waylog.process.broker_liveness.time.monotonic", lambda: now[0])
    status = ProcessStatus()
    liveness = BrokerLiveness(status)
    status.trouble("letters", "refused")
    now[0] += SILENT_S + 1
    liveness.silent()
    liveness.heard()
    assert heard(supervisor) == [
        "not ready: refused",
        "not ready: refused; nothing heard from the log for 7 s",
        "not ready: refused",
    ]
