"""The end of a broker's process: what ends it, and that it comes in time after a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: A broker that fails as soon as it serves. Its stop hangs, unless only a request has failed.
BROKER = """
import asyncio, os, signal, sys
from broker_core.server import command, runtime
from waylog.cli import main
from waylog.process.background import fail

start_broker = runtime.start_broker

async def start_and_fail(config):
    broker = await start_broker(config)
    loop = asyncio.get_running_loop()
    if sys.argv[1] == "disk":
        loop.call_later(0.1, broker.cannot_go_on, OSError(5, "Input/output error"))
    elif sys.argv[1] == "request":
        # As if written in a module that answers requests.
        exec("def late(): raise ValueError('torn')", own := {"__name__": sys.argv[3]})
        loop.call_later(0.1, own["late"])
        loop.call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)
    else:
        loop.call_later(0.1, fail, loop, "upkeep", ValueError("torn"))
    return broker

async def hang(broker):
    await asyncio.Event().wait()

runtime.start_broker = start_and_fail
if sys.argv[1] != "request":
    runtime.Broker.close = hang
command.FAILED_STOP_MAX_S = 0.2
sys.exit(main(["broker", "--config", sys.argv[2]]))
"""


def run(folder: Path, failed: str, *more: str) -> subprocess.CompletedProcess[str]:
    config = folder / "server.properties"
    config.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={folder / 'log'}\n")
    words = [sys.executable, "-c", BROKER, failed, str(config), *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("failed", ["disk", "task"])
def test_a_broker_that_has_failed_ends_although_its_stop_hangs(failed: str, tmp_path: Path) -> None:
    ended = run(tmp_path, failed)
    assert ended.returncode == 1
    assert "the process ends without waiting" in ended.stderr


def test_a_timer_of_a_request_that_fails_ends_no_broker(tmp_path: Path) -> None:
    ended = run(tmp_path, "request", "broker_core.server.handlers.fetch")
    assert ended.returncode == 0
    assert "ValueError: torn" in ended.stderr
