"""Processes that hang, at their start, while they serve or when they are to end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests import child_processes
from tests.waylog.supervision.processes import (
    READY_THEN_WAIT,
    fail_once,
    spec,
    state,
    until,
)
from waylog.process.child_process import ChildProcess
from waylog.supervision import supervised_process as module
from waylog.supervision import supervisor as supervisor_module
from waylog.supervision.process_spec import StartError
from waylog.supervision.progress import Progress
from waylog.supervision.supervisor import Supervisor

pytestmark = pytest.mark.early


async def test_a_frozen_process_ends_in_order_and_no_other_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    server = """
        import pathlib, signal, sys
        from waylog.process.notify import notify_ready
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("ended in order", flush=True)))
        notify_ready()
        signal.pause()
    """
    client = """
        import pathlib, signal, time
        from waylog.process.notify import notify_ready
        def end(*_):
            state = pathlib.Path("/proc/SERVER/stat")
            deadline = time.monotonic() + 60
            while state.read_text().split()[2] == "T" and time.monotonic() < deadline:
                time.sleep(0.01)
            print("the server is", state.read_text().split()[2], flush=True)
            raise SystemExit
        signal.signal(signal.SIGTERM, end)
        notify_ready()
        signal.pause()
    """
    supervisor.start(spec("server", server))
    await supervisor.wait_ready("server")
    pid = state(tmp_path, "server")["pid"]
    supervisor.start(spec("client", client.replace("SERVER", str(pid))))
    await supervisor.wait_ready("client")
    os.kill(pid, signal.SIGSTOP)
    await supervisor.stop()
    assert "the server is T" not in (tmp_path / "logs" / "client.log").read_text()
    assert "ended in order" in (tmp_path / "logs" / "server.log").read_text()
    assert not caplog.messages


async def test_a_process_that_hangs_is_killed_after_its_time_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = """
        import signal
        from waylog.process.notify import notify_ready
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        notify_ready()
        while True:
            signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("older", READY_THEN_WAIT))
    supervisor.start(replace(spec("hanging", hanging), stop_timeout_s=0.5))
    for name in ("older", "hanging"):
        await supervisor.wait_ready(name)
    pids = [state(tmp_path, name)["pid"] for name in ("older", "hanging")]
    started = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - started >= 0.5
    assert not any(map(child_processes.is_alive, pids))
    assert caplog.messages == ["hanging did not stop in time and is killed"]


async def test_a_process_that_makes_no_progress_is_aborted_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As systemd sets it for the supervisor alone, if that is watched.
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    program = """
        import asyncio, sys, time
        from pathlib import Path
        from waylog.process.notify import notify_ready
        from waylog.process.watchdog import EventLoopWatchdog

        def hangs_here():
            time.sleep(600)

        async def main():
            notify_ready()
            EventLoopWatchdog(asyncio.get_running_loop())
            await asyncio.sleep(0.5)
            if not Path(sys.argv[1]).exists():
                Path(sys.argv[1]).touch()
                hangs_here()
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    hanging = spec("one", program)
    argv = [*hanging.argv, str(tmp_path / "has hung")]
    supervisor.start(replace(hanging, argv=argv, watchdog_s=8.0))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["restarts"] == 1, 90.0)
    assert "one has made no progress for 8 s and is aborted" in caplog.text
    await until(lambda: "hangs_here" in (tmp_path / "logs" / "one.log").read_text())
    await until(lambda: state(tmp_path, "one")["ready"])
    await supervisor.stop()


async def test_a_process_that_never_reports_progress_is_not_watched(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(replace(spec("one", READY_THEN_WAIT), watchdog_s=0.1))
    await supervisor.wait_ready("one")
    await asyncio.sleep(3.0)
    assert state(tmp_path, "one")["restarts"] == 0
    await supervisor.stop()


async def test_a_process_that_hangs_before_it_is_ready_is_aborted_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = """
        import signal, sys, time
        from pathlib import Path

        def hangs_here():
            time.sleep(3600)

        started, hung = Path(sys.argv[1]), Path(sys.argv[2])
        if started.exists() and not hung.exists():
            hung.touch()
            hangs_here()
        from waylog.process.notify import notify_ready
        started.touch()
        notify_ready()
        signal.pause()
    """
    hanging = spec("one", program, ready_timeout_s=3.0)
    hung = tmp_path / "hung"
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(replace(hanging, argv=[*hanging.argv, str(tmp_path / "started"), str(hung)]))
    # Not `wait_ready`: a Python may need more time for its start, and gets it at the next one.
    await until((tmp_path / "processes.json").exists)
    await until(lambda: state(tmp_path, "one")["ready"])
    os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
    await until(hung.exists)
    await until(lambda: state(tmp_path, "one")["ready"])
    assert " s after its start and is aborted" in caplog.text
    await until(lambda: "hangs_here" in (tmp_path / "logs" / "one.log").read_text())
    await supervisor.stop()


async def test_a_start_that_asks_for_more_time_gets_it(tmp_path: Path) -> None:
    program = """
        import signal, time
        from waylog.process.notify import notify_ready, notify_starting
        notify_starting(600)
        time.sleep(11)
        notify_ready()
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program, ready_timeout_s=8.0))
    await supervisor.wait_ready("one")
    assert state(tmp_path, "one")["restarts"] == 0
    await supervisor.stop()


async def test_a_start_that_is_not_ready_in_the_time_it_has_asked_for_is_late(
    tmp_path: Path,
) -> None:
    program = """
        import signal
        from waylog.process.notify import notify_starting
        notify_starting(1)
        print("reading", flush=True)
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program, ready_timeout_s=0.5))
    async with asyncio.timeout(60):
        with pytest.raises(StartError, match="one was not ready within"):
            await supervisor.wait_ready("one")
    await supervisor.stop()


async def test_a_process_that_hangs_and_does_not_end_when_it_is_aborted_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GUARD_S", 0.05)
    monkeypatch.setattr(module, "_ABORT_S", 0.1)
    program = """
        import signal
        signal.signal(signal.SIGABRT, lambda *_: None)
        while True:
            signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program, ready_timeout_s=0.5))
    await until((tmp_path / "processes.json").exists)
    await until(lambda: state(tmp_path, "one")["restarts"] == 1)
    await supervisor.stop()


async def test_a_process_that_is_being_stopped_need_not_report_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GUARD_S", 0.05)
    program = """
        import signal, sys, time
        from waylog.process.notify import notify, notify_ready
        def end(*_):
            time.sleep(0.8)
            sys.exit(print("ended in order", flush=True))
        signal.signal(signal.SIGTERM, end)
        notify("WATCHDOG=1")
        notify_ready()
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(replace(spec("one", program), watchdog_s=0.5))
    await supervisor.wait_ready("one")
    await supervisor.stop()
    assert "ended in order" in (tmp_path / "logs" / "one.log").read_text()


async def test_a_time_in_which_supervisor_and_process_were_asleep_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GUARD_S", 0.05)
    program = """
        import time
        from waylog.process.notify import notify, notify_ready
        notify_ready()
        for number in range(10_000):
            notify(f"STATUS={number}\\nWATCHDOG=1")
            time.sleep(0.05)
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(replace(spec("one", program), watchdog_s=1.0))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["status"])
    process = state(tmp_path, "one")
    os.kill(process["pid"], signal.SIGSTOP)
    time.sleep(1.2)  # noqa: ASYNC251 (the supervisor's event loop is to stand still, too)
    os.kill(process["pid"], signal.SIGCONT)
    seen = int(process["status"])
    await until(lambda: int(state(tmp_path, "one")["status"] or 0) > seen + 5)
    assert state(tmp_path, "one")["pid"] == process["pid"]
    await supervisor.stop()


async def test_a_process_that_cannot_be_killed_keeps_no_other_from_being_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(module, "KILL_TIMEOUT_S", 0.1)
    program = """
        import signal
        from waylog.process.notify import notify_ready
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        notify_ready()
        while True:
            signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("older", READY_THEN_WAIT))
    supervisor.start(replace(spec("hanging", program), stop_timeout_s=0.1))
    for name in ("older", "hanging"):
        await supervisor.wait_ready(name)
    older, hanging = (state(tmp_path, name)["pid"] for name in ("older", "hanging"))
    with monkeypatch.context() as patch:
        # As if it hung in the kernel.
        patch.setattr(ChildProcess, "kill_group", lambda _: None)
        await supervisor.stop()
    assert not child_processes.is_alive(older)
    assert f"hanging, process {hanging}, cannot be killed" in caplog.text
    assert "no longer supervised" not in caplog.text
    os.kill(hanging, signal.SIGKILL)
    await until(lambda: not child_processes.is_alive(hanging))


async def test_a_watchdog_that_has_failed_once_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GUARD_S", 0.05)
    fail_once(monkeypatch, Progress, "passed", RuntimeError("planted"))
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", "import signal; signal.pause()", ready_timeout_s=0.3))
    await until((tmp_path / "processes.json").exists)
    await until(lambda: state(tmp_path, "one")["restarts"] >= 1)
    assert "one: its watchdog failed" in caplog.text
    assert "after its start and is aborted" in caplog.text
    await supervisor.stop()
