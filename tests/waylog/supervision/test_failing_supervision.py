"""Errors in the supervision itself end no supervision without a word."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import child_processes
from tests.waylog.supervision.processes import (
    READY_THEN_WAIT,
    children,
    executable,
    fail_once,
    spec,
    state,
    until,
)
from waylog.process.child_process import ChildProcess
from waylog.supervision import supervisor as supervisor_module
from waylog.supervision.output_log import OutputLog
from waylog.supervision.process_spec import SupervisionError
from waylog.supervision.supervisor import Supervisor


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
    logging.getLogger("waylog.supervision").addHandler(refusing)
    try:
        os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
        await until(lambda: "its supervision failed" in caplog.text)
        # What cannot be started is not said to run.
        assert not state(tmp_path, "one")["ready"]
        assert state(tmp_path, "one")["pid"] is None
        aside.rename(program)
        await until(lambda: state(tmp_path, "one")["ready"])
    finally:
        logging.getLogger("waylog.supervision").removeHandler(refusing)
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

    monkeypatch.setattr(supervisor_module, "_STATE_AGAIN_S", 0.05)
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
    logging.getLogger("waylog.supervision").addHandler(refusing)
    try:
        os.kill(state(tmp_path, "one")["pid"], signal.SIGKILL)
        with pytest.raises(SupervisionError, match="one is no longer supervised: RuntimeError: p"):
            await supervisor.wait_refused()
        await supervisor.stop()
    finally:
        logging.getLogger("waylog.supervision").removeHandler(refusing)
    assert children() <= others
