from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from waylog.supervisor import ProcessSpec, StartError, Supervisor

READY_THEN_WAIT = """
    import signal
    from waylog.notify import notify_ready
    print("started", flush=True)
    notify_ready()
    signal.pause()
"""


def spec(name: str, program: str, ready_timeout_s: float = 20.0) -> ProcessSpec:
    return ProcessSpec(
        name, [sys.executable, "-c", textwrap.dedent(program)], ready_timeout_s=ready_timeout_s
    )


def state(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "processes.json").read_text())[name]
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


async def until(condition: Any, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, tmp_path / "logs")
    supervisor.start(spec("one", READY_THEN_WAIT))
    await supervisor.wait_ready("one")
    first = state(tmp_path, "one")["pid"]
    os.kill(first, signal.SIGKILL)
    await until(lambda: state(tmp_path, "one")["restarts"] == 1 and state(tmp_path, "one")["ready"])
    second = state(tmp_path, "one")["pid"]
    assert second != first
    await supervisor.stop()
    assert not alive(second)
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
    supervisor.start(spec("bad", "import sys; sys.exit('no such index')", ready_timeout_s=3.0))
    with pytest.raises(StartError, match="no such index"):
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
            from waylog.notify import notify_ready
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
    await until(lambda: not alive(child))
    await supervisor.stop()


async def test_a_supervisor_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    program = f"""
        import asyncio, sys
        from pathlib import Path
        from waylog.supervisor import ProcessSpec, Supervisor

        async def main():
            folder = Path({str(tmp_path)!r})
            supervisor = Supervisor(folder, folder / "logs")
            program = "import signal; from waylog.notify import *; notify_ready(); signal.pause()"
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
    await until(lambda: not alive(child))
