"""The end of a gateway's process: it is told, and it comes in time whatever it waits for."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SERVICE = """
import asyncio, logging, sys, time
from waylog.process import serving, stop_limit
from waylog.process.background import spawn
from gateway.process.lifecycle import Started, run_service, serve_until_stopped

class Producer:
    fatal = "fenced" if sys.argv[1] == "producer" else None

async def fail():
    raise ValueError("torn")

async def start(telemetry, stack):
    loop = asyncio.get_running_loop()
    waits = {"nothing": lambda: asyncio.sleep(0), "log": lambda: asyncio.sleep(600)}
    if sys.argv[1] == "start":
        logging.info("gateway not ready yet")
        await asyncio.to_thread(time.sleep, 600)
    if sys.argv[1] == "thread":
        loop.run_in_executor(None, time.sleep, 600)
    if sys.argv[1] == "task":
        stack.callback(spawn(fail(), "upkeep").cancel)
    if sys.argv[1] == "nothing":
        # As if written in modules that serve one client.
        for module in ("gateway.mqtt.sessions.session", "gateway.http.ingest.ingest"):
            exec("def serve(): raise ValueError('torn')", own := {"__name__": module})
            loop.call_soon(own["serve"])
    stack.push_async_callback(waits[WAITS.get(sys.argv[1], "nothing")])
    return Started(Producer(), "nowhere")

WAITS = dict.fromkeys(("log", "producer", "task"), "log")
logging.basicConfig(level=logging.INFO)
stop_limit.STOP_MAX_S = 60.0 if sys.argv[1] in ("nothing", "task") else 1.0
serving.FAILED_STOP_MAX_S = 1.0
sys.exit(run_service(serve_until_stopped("127.0.0.1:1", "test", start)))
"""


def test_what_fails_for_one_client_ends_no_gateway_and_its_stop_is_told_when_done() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, "nothing"], stderr=subprocess.PIPE, text=True
    )
    status, said = _stop(process)
    assert status == 0
    assert said.count("ValueError: torn") == 2
    assert "gateway stopped after" in said


@pytest.mark.parametrize("waits_for", ["log", "thread", "start"])
def test_a_stop_ends_in_time_whatever_it_waits_for(waits_for: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, waits_for], stderr=subprocess.PIPE, text=True
    )
    status, said = _stop(process)
    assert status == 1
    assert "not stopped within 1 s: the process ends without waiting" in said


@pytest.mark.parametrize(
    ("failed", "says"),
    [("task", "upkeep failed; this process ends"), ("producer", "stopping: fenced")],
)
def test_an_end_after_a_failure_comes_in_time_too(failed: str, says: str) -> None:
    words = [sys.executable, "-c", SERVICE, failed]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "not stopped within 1 s: the process ends without waiting" in ended.stderr


def _stop(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Stop a service that is ready, or never will be; return its status and its log."""
    said = ""
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "gateway ready" in line or "gateway not ready yet" in line:
                process.send_signal(signal.SIGTERM)
        return process.wait(60), said
