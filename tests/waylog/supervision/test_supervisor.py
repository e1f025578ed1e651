"""Processes are started, watched, started again and stopped."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import shutil
import signal
import socket
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from tests import child_processes
from tests.small_disk import small_disk
from tests.waylog.supervision.processes import (
    PATIENCE_S,
    READY_THEN_WAIT,
    children,
    executable,
    spec,
    state,
    until,
)
from waylog.supervision import supervised_process as module
from waylog.supervision import supervisor as supervisor_module
from waylog.supervision.process_spec import ProcessSpec, StartError
from waylog.supervision.supervisor import Supervisor

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
        from waylog.supervision.process_spec import ProcessSpec
        from waylog.supervision.supervisor import Supervisor

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


async def test_a_process_that_is_being_started_when_all_are_stopped_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 600.0)
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
