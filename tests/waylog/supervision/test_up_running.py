"""`waylog up` as a process: what it tells systemd, and what ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import child_processes
from tests.end_to_end.running import WAYLOG, start_platform

OPTIONS = ("--no-history", "--open")

#: A log that takes no more warnings of the supervisor: its supervision of a process fails, and what
#: it says of that fails too.
CANNOT_LOG = """
    import logging, sys
    from waylog.cli import main

    class Refusing(logging.Handler):
        def emit(self, record):
            raise RuntimeError("planted")

    logging.getLogger("waylog.supervision").addHandler(Refusing(logging.WARNING))
    sys.exit(main())
"""


@pytest.fixture
def systemd(supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """The socket at which systemd hears of a platform that is started now."""
    supervisor.settimeout(120)
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
    return supervisor


@pytest.mark.timeout(300)
def test_systemd_hears_when_it_is_ready_and_that_it_goes_on(
    tmp_path: Path, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", str(1_500_000))
    platform = start_platform(tmp_path / "data", *OPTIONS, timeout_s=240)
    try:
        heard = [systemd.recv(1000)]
        while heard[-1] == b"EXTEND_TIMEOUT_USEC=60000000":
            heard.append(systemd.recv(1000))
        assert len(heard) > 1
        heard = heard[-1:] + [systemd.recv(1000) for _ in range(4)]
        # Its processes report to it alone, with sockets that they get from it.
        assert heard == [b"READY=1", *[b"WATCHDOG=1"] * 4]
        assert all(each["ready"] for each in platform.processes().values())
    finally:
        assert platform.stop() == 0


@pytest.mark.timeout(300)
def test_a_platform_whose_output_nobody_reads_runs_on(
    tmp_path: Path, systemd: socket.socket
) -> None:
    listeners = ("--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0")
    process = subprocess.Popen(
        [*WAYLOG, "up", "--data", str(tmp_path / "data"), *listeners, *OPTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    try:
        while systemd.recv(1000) != b"READY=1":
            pass
    finally:
        process.terminate()
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "the output goes nowhere from now on: Broken pipe" in said
    assert "Traceback" not in said


@pytest.mark.timeout(300)
def test_it_ends_and_stops_its_processes_if_it_cannot_supervise_them(tmp_path: Path) -> None:
    program = (sys.executable, "-c", textwrap.dedent(CANNOT_LOG))
    platform = start_platform(tmp_path / "data", *OPTIONS, timeout_s=240, waylog=program)
    try:
        pids = [each["pid"] for each in platform.processes().values()]
        os.kill(platform.processes()["geo"]["pid"], signal.SIGKILL)
        printed, _ = platform.process.communicate(timeout=120)
        assert platform.process.returncode == 1
        assert printed.splitlines()[-1] == (
            "waylog up: geo is no longer supervised: RuntimeError: planted"
        )
        assert not any(map(child_processes.is_alive, pids))
    finally:
        platform.stop()
