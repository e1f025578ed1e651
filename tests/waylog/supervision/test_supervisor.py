from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import child_processes
from tests.small_disk import small_disk
from waylog.process.child_process import ChildProcess
from waylog.supervision import supervisor as module
from waylog.supervision.output_log import OutputLog
from waylog.supervision.progress import Progress
from waylog.supervision.supervisor import ProcessSpec, StartError, SupervisionError, Supervisor

#: On a machine that has much else to do, a Python may need many seconds to start.
PATIENCE_S = 240.0

READY_THEN_WAIT = """
    import signal
    from waylog.process.notify import notify_ready
    print("started", flush=True)
    notify_ready()
    signal.pause()
"""


def spec(name: str, program: str, ready_timeout_s: float = PATIENCE_S) -> ProcessSpec:
    return ProcessSpec(
        name, [sys.executable, "-c", textwrap.dedent(program)], ready_timeout_s=ready_timeout_s
    )


def state(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "processes.json").read_text())[name]
    return found


async def until(condition: Any, timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


def executable(path: Path) -> ProcessSpec:
    """Write a program to an executable file of its own, which a test can remove."""
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(READY_THEN_WAIT))
    path.chmod(0o755)
    return ProcessSpec("one", [str(path)])


def children() -> set[int]:
    """Return the living processes that this one has started."""
    return set(child_processes.children())


#: Each restart of some tests would leave a descriptor; other parts of this process may open some.
ROUNDS = 3


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    first = state(tmp_path, "one")["pid"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: state(tmp_path, "one")["restarts"] == 1 and state(tmp_path, "one")["ready"])
    second = state(tmp_path, "one")["pid"]
    assert second != first
    # What has watched the first one does not count the seconds of the second one, too.
    assert [each.get_name() for each in asyncio.all_tasks()].count("one guard") == 1
    await supervisor.stop()
    assert not child_processes.is_alive(second)
    assert not (tmp_path / "processes.json").exists()


async def test_what_a_process_prints_is_kept(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    await supervisor.stop()
    assert "started" in (tmp_path / "logs" / "one.log").read_text()


async def test_a_process_that_never_gets_ready_is_reported_with_its_last_lines(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("bad", "import sys; sys.exit('no such index')"))
    with pytest.raises(StartError, match="no such index"):
        await supervisor.wait_ready("bad")
    await supervisor.stop()


async def test_the_last_line_of_a_process_is_told_though_it_is_read_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readline = asyncio.StreamReader.readline

    async def read_late(reader: asyncio.StreamReader) -> bytes:
        line = await readline(reader)
        await until(lambda: not children() - others)
        await asyncio.sleep(0.05)
        return line

    others = children()
    monkeypatch.setattr(asyncio.StreamReader, "readline", read_late)
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("bad", "print('no such index'); raise SystemExit(2)"))
    with pytest.raises(StartError, match="its last line: no such index"):
        await supervisor.wait_ready("bad")
    await supervisor.stop()


async def test_what_it_said_before_is_reported_while_it_has_said_nothing_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long its first run takes, its end is not the end of its first start.
    monkeypatch.setattr(module, "FIRST_START_S", math.inf)
    died = tmp_path / "died"
    program = (
        "import pathlib, sys, time\n"
        f"died = pathlib.Path({str(died)!r})\n"
        "if not died.exists():\n"
        "    died.touch()\n"
        "    sys.exit('no such index')\n"
        "time.sleep(3600)"
    )
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("bad", program, ready_timeout_s=1.0))
    await until(died.exists)
    await until(lambda: state(tmp_path, "bad")["restarts"] == 1)
    with pytest.raises(StartError, match="not ready within 1 s, its last line: no such index"):
        await supervisor.wait_ready("bad")
    await supervisor.stop()


async def test_the_children_of_a_dead_process_die_before_the_next_one_starts(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    child_file = tmp_path / "child"
    supervisor.start(
        spec(
            "parent",
            f"""
            import pathlib, signal, subprocess
            from waylog.process.notify import notify_ready
            child = subprocess.Popen(["sleep", "600"])
            pathlib.Path({str(child_file)!r}).write_text(str(child.pid))
            notify_ready()
            signal.pause()
            """,
        )
    )
    await supervisor.wait_ready("parent")
    child = int(child_file.read_text())
    os.kill(state(tmp_path, "parent")["pid"], signal.SIGKILL)
    await until(lambda: not child_processes.is_alive(child))
    await supervisor.stop()


async def test_a_supervisor_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    program = f"""
        import asyncio, sys
        from pathlib import Path
        from waylog.supervision.supervisor import ProcessSpec, Supervisor

        async def main():
            folder = Path({str(tmp_path)!r})
            supervisor = Supervisor(folder, folder / "logs")
            program = "import signal; from waylog.process.notify import *; notify_ready(); \
signal.pause()"
            supervisor.start(ProcessSpec("one", [sys.executable, "-c", program]))
            await supervisor.wait_ready("one")
            print("up", flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert (await process.stdout.readline()).strip() == b"up"
    child = state(tmp_path, "one")["pid"]
    process.kill()
    await process.wait()
    await until(lambda: not child_processes.is_alive(child))


async def test_a_process_that_cannot_be_started_again_is_tried_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program"
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(executable(program))
    await supervisor.wait_ready("one")
    before = descriptors()
    aside = program.rename(tmp_path / "aside")
    os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
    await until(lambda: state(tmp_path, "one")["restarts"] > ROUNDS)
    assert "could not be started" in caplog.text
    assert "No such file or directory" in caplog.text
    aside.rename(program)
    await until(lambda: state(tmp_path, "one")["ready"])
    assert descriptors() < before + ROUNDS
    pid = state(tmp_path, "one")["pid"]
    await supervisor.stop()
    assert not child_processes.is_alive(pid)


async def test_a_supervisor_without_descriptors_starts_its_process_when_it_has_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = descriptors()
    killed = {None}
    for _ in range(ROUNDS):
        caplog.clear()
        running = state(tmp_path, "one")["pid"]
        killed.add(running)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, hard))
        try:
            os.kill(running, signal.SIGKILL)
            await until(lambda: "could not be started" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert "Too many open files" in caplog.text
        await until(lambda: state(tmp_path, "one")["pid"] not in killed)
        await until(lambda: state(tmp_path, "one")["ready"])
    assert descriptors() < before + ROUNDS
    await supervisor.stop()


@pytest.mark.skipif(os.getuid() == 0, reason="the limit on processes does not hold for root")
async def test_a_supervisor_that_may_not_fork_starts_its_process_when_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    try:
        os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
        await until(lambda: "could not be started" in caplog.text)
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    await until(lambda: state(tmp_path, "one")["ready"])
    await supervisor.stop()


async def test_a_first_start_without_executable_fails_with_the_reason(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(ProcessSpec("one", [str(tmp_path / "nowhere")]))
    with pytest.raises(StartError, match=r"one cannot start: .*nowhere: No such file"):
        await supervisor.wait_ready("one")
    await supervisor.stop()


async def test_a_process_that_fails_in_a_way_nobody_has_foreseen_is_told_of_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(ProcessSpec("one", [sys.executable, "\0"], ready_timeout_s=PATIENCE_S))
    with pytest.raises(StartError, match="one cannot start: could not be supervised"):
        await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["restarts"] >= 3)
    assert "embedded null byte" in caplog.text
    await supervisor.stop()


async def test_a_process_that_was_well_is_started_again_at_once_however_often_it_has_died(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEALTHY_AFTER_S", 0.0)
    monkeypatch.setattr(module, "SAY_AGAIN_S", 0.0)
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")

    def is_back(deaths: int) -> bool:
        now = state(tmp_path, "one")
        return bool(now["ready"]) and now["restarts"] > deaths

    deaths = 0
    for _ in range(3):
        os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
        await until(partial(is_back, deaths))
        # A machine that lacks memory may have made it die more than once.
        deaths = state(tmp_path, "one")["restarts"]
    assert caplog.text.count("; starting it again in") == deaths
    assert caplog.text.count("; starting it again in 0.1 s") == deaths
    await supervisor.stop()


async def test_a_process_that_is_called_wrongly_is_not_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    program = "import sys; print('unknown option: --foo', file=sys.stderr); sys.exit(2)"
    supervisor.start(spec("one", READY_THEN_WAIT))
    supervisor.start(spec("wrong", program))
    with pytest.raises(StartError) as refused:
        await supervisor.wait_refused()
    assert refused.value.status == 2
    assert "wrong cannot start: ended with status 2" in str(refused.value)
    assert "unknown option: --foo" in str(refused.value)
    assert str(tmp_path / "logs" / "wrong.log") in str(refused.value)
    with pytest.raises(StartError):
        await supervisor.wait_ready("wrong")
    await supervisor.wait_ready("one")
    assert state(tmp_path, "wrong")["restarts"] == 0
    await supervisor.stop()


async def test_what_a_process_says_of_itself_is_told_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = """
        import signal
        from waylog.process.notify import notify, notify_ready
        notify_ready()
        for _ in range(3):
            notify("STATUS=not ready: nothing heard from the log for 7 s")
        notify("STATUS=ready")
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["status"] == "ready")
    await supervisor.stop()
    assert caplog.text.count("one is not ready: nothing heard from the log for 7 s") == 1
    assert caplog.text.count("one is ready again") == 1


async def test_what_a_process_has_said_ends_with_it(tmp_path: Path) -> None:
    said, go_on = tmp_path / "said", tmp_path / "go-on"
    program = f"""
        import pathlib, signal, time
        from waylog.process.notify import notify, notify_ready
        said, go_on = pathlib.Path({str(said)!r}), pathlib.Path({str(go_on)!r})
        if not said.exists():
            said.touch()
            notify_ready()
            notify("STATUS=not ready: the disk is full")
        else:
            while not go_on.exists():
                time.sleep(0.01)
            notify("STATUS=nearly, and then READY=1")
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["status"].startswith("not ready"))
    assert state(tmp_path, "one")["ready"] is False
    os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
    await until(lambda: not state(tmp_path, "one")["status"])
    assert not state(tmp_path, "one")["ready"]
    go_on.touch()
    await until(lambda: state(tmp_path, "one")["status"].startswith("nearly"))
    assert not state(tmp_path, "one")["ready"]
    await supervisor.stop()


async def test_what_is_said_for_a_process_that_has_ended_is_not_said_by_the_next_one(
    tmp_path: Path,
) -> None:
    address = tmp_path / "address"
    program = f"""
        import os, pathlib, signal
        address = pathlib.Path({str(address)!r})
        if not address.exists():
            address.write_text(os.environ["NOTIFY_SOCKET"])
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program))
    await until((tmp_path / "processes.json").exists)
    await until(lambda: state(tmp_path, "one")["restarts"] == 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as late:
        late.sendto(b"READY=1", address.read_text().replace("@", "\0", 1))
    await until(lambda: state(tmp_path, "one")["pid"])
    assert not state(tmp_path, "one")["ready"]
    await supervisor.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another account")
async def test_another_account_does_not_say_that_a_process_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = """
        import os, signal
        from waylog.process.notify import notify, notify_ready
        child = os.fork()
        if not child:
            os.setuid(65534)
            notify("STATUS=not ready: lies")
            notify_ready()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("lied", flush=True)
        signal.pause()
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program))
    log = tmp_path / "logs" / "one.log"
    await until(lambda: log.exists() and "lied" in log.read_text())
    # What it said before that has arrived; the loop has looked at it after another turn.
    await asyncio.sleep(0)
    assert not state(tmp_path, "one")["ready"]
    assert "lies" not in caplog.text
    await supervisor.stop()


async def test_a_process_with_status_2_that_has_served_is_started_again(tmp_path: Path) -> None:
    once = tmp_path / "once"
    program = f"""
        import pathlib, signal, sys
        from waylog.process.notify import notify_ready
        notify_ready()
        if pathlib.Path({str(once)!r}).exists():
            signal.pause()
        pathlib.Path({str(once)!r}).touch()
        sys.exit(2)
    """
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["restarts"] == 1 and state(tmp_path, "one")["ready"])
    await supervisor.stop()


async def test_stop_ends_the_older_processes_though_a_newer_one_cannot_be_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("older", READY_THEN_WAIT))
    await supervisor.wait_ready("older")
    older = state(tmp_path, "older")["pid"]
    supervisor.start(ProcessSpec("newer", [str(tmp_path / "nowhere")]))
    await until(lambda: "newer could not be started" in caplog.text)
    await supervisor.stop()
    assert not child_processes.is_alive(older)


async def test_a_full_disk_is_named_once_and_ends_no_supervision(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING)
    talking = """
        import time
        from waylog.process.notify import notify_ready
        notify_ready()
        while True:
            print("a line", flush=True)
            time.sleep(0.01)
    """
    with small_disk(tmp_path / "data", 256 * 1024) as disk:
        supervisor = Supervisor(disk.folder, disk.folder / "logs")
        supervisor.start(spec("one", talking))
        await supervisor.wait_ready("one")
        first = state(disk.folder, "one")["pid"]
        others = children() - {first}
        disk.fill()
        os.kill(first, signal.SIGKILL)
        await until(lambda: f"no room left in {disk.folder}: 0 B free" in caplog.text)
        await until(lambda: f"no room left in {disk.folder / 'logs'}: 0 B free" in caplog.text)
        await until(lambda: children() - others - {first})
        await asyncio.sleep(0.3)  # time for some thirty lines that cannot be written
        assert caplog.text.count("no room left") == 2
        disk.free()
        await until(lambda: f"{disk.folder / 'logs'} can be written again" in caplog.text)
        os.kill((children() - others).pop(), signal.SIGKILL)
        await until(lambda: state(disk.folder, "one")["restarts"] == 2)
        await supervisor.stop()
        shutil.rmtree(disk.folder / "logs")
    assert "Traceback" not in caplog.text + capfd.readouterr().err


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
            deadline = time.monotonic() + 5
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


def fail_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    error: BaseException,
    when: Callable[..., bool] = lambda *_: True,
) -> None:
    """Have the next call of a function raise `error`; `when` may choose which call."""
    original = getattr(owner, name)
    errors = [error]

    def called(*arguments: Any, **named: Any) -> Any:
        if errors and when(*arguments):
            raise errors.pop()
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, called)


class Refusing(logging.Handler):
    """A log that cannot take some messages."""

    def __init__(self, text: str, times: float = 1) -> None:
        super().__init__()
        self._text = text
        self._times = times

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage() and self._times > 0:
            self._times -= 1
            raise RuntimeError("planted")


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (ChildProcess, "__init__", RuntimeError("planted")),
        (subprocess.Popen, "wait", RuntimeError("planted")),
        (ChildProcess, "wait", RuntimeError("planted")),
        (ChildProcess, "wait", asyncio.CancelledError("planted")),
        (json, "dumps", RuntimeError("planted")),
        (asyncio, "wait_for", RuntimeError("planted")),
        (asyncio, "wait_for", asyncio.CancelledError("planted")),
        (os, "pipe", asyncio.CancelledError("planted")),
    ],
)
async def test_whatever_fails_in_a_supervision_is_told_and_the_process_started_again(
    owner: Any,
    name: str,
    error: BaseException,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    others = children()
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    first = state(tmp_path, "one")["pid"]
    fail_once(monkeypatch, owner, name, error)
    os.kill(first, signal.SIGKILL)
    await until(lambda: "planted" in caplog.text)
    await until(lambda: state(tmp_path, "one")["ready"] and state(tmp_path, "one")["pid"] != first)
    assert "Traceback" in caplog.text
    assert children() - others == {state(tmp_path, "one")["pid"]}
    await supervisor.stop()
    assert children() <= others


async def test_a_process_whose_watching_has_failed_is_not_started_again_before_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    watching_fails = asyncio.Event()
    wait, kill_group = ChildProcess.wait, ChildProcess.kill_group

    async def wait_in_vain(child: ChildProcess) -> int:
        monkeypatch.setattr(ChildProcess, "wait", wait)
        await watching_fails.wait()
        raise RuntimeError("planted")

    def kill_late(child: ChildProcess) -> None:
        asyncio.get_running_loop().call_later(0.3, kill_group, child)

    monkeypatch.setattr(ChildProcess, "wait", wait_in_vain)
    # Its output, which it closes, does not tell when it ends.
    silent = """
        import os, signal
        from waylog.process.notify import notify_ready
        os.close(1)
        os.close(2)
        notify_ready()
        signal.pause()
    """
    supervisor.start(spec("one", silent))
    await supervisor.wait_ready("one")
    first = state(tmp_path, "one")["pid"]
    monkeypatch.setattr(ChildProcess, "kill_group", kill_late)
    watching_fails.set()
    await until(lambda: state(tmp_path, "one")["restarts"] == 1)
    assert not child_processes.is_alive(first)
    monkeypatch.setattr(ChildProcess, "kill_group", kill_group)
    await supervisor.stop()


async def test_a_process_is_started_again_whose_end_cannot_be_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    program = tmp_path / "program"
    supervisor.start(executable(program))
    await supervisor.wait_ready("one")
    aside = program.rename(tmp_path / "aside")
    refusing = Refusing("starting it again")
    module.logger.addHandler(refusing)
    try:
        os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
        await until(lambda: "its supervision failed" in caplog.text)
        # What cannot be started is not said to run.
        assert not state(tmp_path, "one")["ready"]
        assert state(tmp_path, "one")["pid"] is None
        aside.rename(program)
        await until(lambda: state(tmp_path, "one")["ready"])
    finally:
        module.logger.removeHandler(refusing)
    assert "RuntimeError: planted" in caplog.text
    await supervisor.stop()


async def test_a_state_that_could_not_be_written_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tells_ready(value: Any) -> bool:
        return bool(value["one"]["ready"])

    fail_once(monkeypatch, json, "dumps", RuntimeError("planted"), tells_ready)
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["ready"])
    assert "RuntimeError: planted" in caplog.text
    assert state(tmp_path, "one")["restarts"] == 0
    await supervisor.stop()
    assert not (tmp_path / "processes.json").exists()


async def test_a_state_that_could_not_be_written_is_not_written_after_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any, **_named: Any) -> str:
        raise RuntimeError("planted")

    monkeypatch.setattr(module, "_STATE_AGAIN_S", 0.05)
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", fail)
        supervisor.start(spec("one", READY_THEN_WAIT))
        await supervisor.wait_ready("one")
        await supervisor.stop()
    await asyncio.sleep(0.1)
    assert not (tmp_path / "processes.json").exists()


@pytest.mark.parametrize("error", [RuntimeError("planted"), asyncio.CancelledError("planted")])
async def test_a_line_that_cannot_be_copied_stops_neither_the_copying_nor_the_process(
    error: BaseException,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More than a pipe holds: without a reader the process would stand still.
    program = """
        import signal
        from waylog.process.notify import notify_ready
        print("the first line", flush=True)
        for _ in range(2000):
            print("x" * 99, flush=True)
        print("the last line", flush=True)
        notify_ready()
        signal.pause()
    """
    fail_once(monkeypatch, OutputLog, "write", error, lambda _, line: line == "the first line")
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", program))
    await supervisor.wait_ready("one")
    await until(lambda: "the last line" in (tmp_path / "logs" / "one.log").read_text())
    assert "one: copying its output failed" in caplog.text
    assert "planted" in caplog.text
    assert state(tmp_path, "one")["restarts"] == 0
    await supervisor.stop()


@pytest.mark.parametrize("error", [RuntimeError("planted"), asyncio.CancelledError("planted")])
async def test_a_process_whose_output_nobody_copies_is_started_again(
    error: BaseException,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail_once(monkeypatch, asyncio.StreamReader, "exception", error)
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    await until(lambda: state(tmp_path, "one")["restarts"] == 1 and state(tmp_path, "one")["ready"])
    assert "one output has failed; the process is killed" in caplog.text
    await supervisor.stop()


async def test_a_supervision_that_cannot_go_on_is_told_and_the_processes_are_stopped(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    others = children()
    for name in ("one", "two"):
        supervisor.start(spec(name, READY_THEN_WAIT))
        await supervisor.wait_ready(name)
    refusing = Refusing("", math.inf)
    module.logger.addHandler(refusing)
    try:
        os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
        with pytest.raises(SupervisionError, match="one is no longer supervised: RuntimeError: p"):
            await supervisor.wait_refused()
        await supervisor.stop()
    finally:
        module.logger.removeHandler(refusing)
    assert children() <= others


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
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 0.1)
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


async def test_a_process_that_is_being_started_when_all_are_stopped_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT_S", 600.0)
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    others = children()
    stopping: list[asyncio.Task[None]] = []
    pipe = os.pipe

    def begin_to_stop() -> tuple[int, int]:
        if not stopping:
            stopping.append(asyncio.create_task(supervisor.stop()))
        return pipe()

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", begin_to_stop)
        supervisor.start(spec("one", READY_THEN_WAIT))
        await until(lambda: stopping)
    async with asyncio.timeout(60):
        await stopping[0]
    assert children() <= others
