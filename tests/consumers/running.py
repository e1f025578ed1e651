"""`waylog` commands in processes of their own, and a broker among them."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.environments import own_environment
from tests.ports import reserved_ports

WAYLOG = (sys.executable, "-m", "waylog.cli")


def await_condition(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `condition()` is true; fails the test with `what` after `timeout_s`.

    A condition that takes long is looked at less often, so that most of the processor is left to
    what has to become true.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            pytest.fail(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(min(max(0.02, 4 * (now - began)), 1.0))


class Process:
    """A running `waylog` command, and the lines it has written."""

    def __init__(
        self,
        *words: str,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = WAYLOG,
    ) -> None:
        """`environment` is added to that of the tests."""
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [*program, *words],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=own_environment() | dict(environment or {}),
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str, timeout_s: float = 60) -> re.Match[str]:
        """Wait for the next line that matches, and return the match."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                pytest.fail(f"no line {pattern!r} in:\n{self.output}")
            if match := re.search(pattern, line):
                return match

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Send a signal and wait; return the exit status."""
        if self._process.poll() is None:
            os.kill(self.pid, number)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = 60) -> int:
        """Wait until it ends by itself; return the exit status."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"did not stop:\n{self.output}")
        finally:
            self._reader.join()
        return status

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.lines.append(line)
                self._new.put(line)
        self._new.put(None)


class Broker:
    """A broker that can be killed and started again on the same port."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are further ones of server.properties."""
        self._config = directory / "server.properties"
        self._settings = {
            "node.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{reserved_ports(1)[0]}",
            "log.dirs": str(directory / "log"),
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self.address = ""
        self.start()

    def start(self) -> None:
        text = "".join(f"{name}={value}\n" for name, value in self._settings.items())
        self._config.write_text(text)
        self.process = Process("broker", "--config", str(self._config))
        self.address = self.process.wait_for(r"serves (\S+:\d+)").group(1).rstrip(",")
        self._settings["listeners"] = f"PLAINTEXT://{self.address}"

    def kill(self) -> None:
        self.process.stop(signal.SIGKILL)
