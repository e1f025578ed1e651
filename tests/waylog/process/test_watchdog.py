from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress

import pytest

from tests.event_loops import on_both_event_loops
from waylog.process.watchdog import EventLoopWatchdog, ProgressWatchdog, Watchdog, interval_s


@pytest.fixture(autouse=True)
def _supervised(supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", supervisor.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "150000")


@pytest.mark.parametrize("allowed", ["", "0", "soon", "-5"])
def test_nobody_is_told_where_nobody_watches(
    allowed: str, supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", allowed)
    assert interval_s() is None
    Watchdog().alive()
    supervisor.setblocking(False)
    with pytest.raises(BlockingIOError):
        supervisor.recv(100)


def test_a_child_of_the_watched_process_reports_nothing(
    supervisor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_PID", str(os.getppid()))
    assert interval_s() is None
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert interval_s() == pytest.approx(0.05)


def test_a_supervisor_that_does_not_read_stops_nobody(supervisor: socket.socket) -> None:
    sending = threading.Thread(target=Watchdog().wait, args=(threading.Event(), 2), daemon=True)
    sending.start()
    sending.join(60)
    assert not sending.is_alive()


def test_a_loop_reports_progress_now_and_then(supervisor: socket.socket) -> None:
    watchdog = Watchdog()
    for _ in range(1000):
        watchdog.alive()
    assert supervisor.recv(100) == b"WATCHDOG=1"
    supervisor.setblocking(False)
    count = 0
    with pytest.raises(BlockingIOError):
        while supervisor.recv(100):
            count += 1
    assert count < 100


def test_a_wait_for_an_event_is_progress(supervisor: socket.socket) -> None:
    event = threading.Event()

    def heard() -> None:
        for _ in range(3):
            assert supervisor.recv(100) == b"WATCHDOG=1"
        event.set()

    hearing = threading.Thread(target=heard)
    hearing.start()
    assert Watchdog().wait(event, 30.0)
    hearing.join()
    assert not Watchdog().wait(threading.Event(), 0.01)


def test_an_unwatched_process_waits_for_an_event_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    event = threading.Event()
    assert not Watchdog().wait(event, 0.01)
    threading.Timer(0.05, event.set).start()
    assert Watchdog().wait(event, 30.0)


def await_silence(supervisor: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until it is said why, and no report has come for a while; one is due each 0.05 s."""
    supervisor.settimeout(0.5)
    while "there has been no progress for " not in caplog.text:
        with suppress(TimeoutError):
            supervisor.recv(100)
    with pytest.raises(TimeoutError):
        while supervisor.recv(100):
            pass
    supervisor.settimeout(60)


def test_long_steps_are_progress_as_long_as_they_end(
    supervisor: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog = ProgressWatchdog(1.0)
    for _ in range(2):
        watchdog.start()
        # Several reports in one step, until it has taken too long.
        for _ in range(3):
            assert supervisor.recv(100) == b"WATCHDOG=1"
        await_silence(supervisor, caplog)
        assert caplog.text.count("there has been no progress for ") == 1
        caplog.clear()
    watchdog.advanced()
    assert supervisor.recv(100) == b"WATCHDOG=1"
    watchdog.close()


def test_a_wait_of_any_length_is_progress(supervisor: socket.socket) -> None:
    watchdog, event = ProgressWatchdog(0.3), threading.Event()
    watchdog.start()

    def hear() -> None:
        for _ in range(20):
            assert supervisor.recv(100) == b"WATCHDOG=1"
        event.set()

    hearing = threading.Thread(target=hear)
    hearing.start()
    assert watchdog.wait(event, 60.0)
    hearing.join()
    assert not watchdog.wait(threading.Event(), 0.01)
    watchdog.close()


def test_where_nobody_watches_no_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    before = threading.active_count()
    ProgressWatchdog(1.0).start()
    assert threading.active_count() == before


@on_both_event_loops
async def test_an_event_loop_reports_progress_until_that_is_ended(
    supervisor: socket.socket,
) -> None:
    supervisor.setblocking(False)
    loop = asyncio.get_running_loop()
    watchdog = EventLoopWatchdog(loop)
    for _ in range(3):
        assert await loop.sock_recv(supervisor, 100) == b"WATCHDOG=1"
    watchdog.close()
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await loop.sock_recv(supervisor, 100)
