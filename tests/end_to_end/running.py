"""A platform as a user starts it: `waylog up` in a process of its own, on ports of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.running import await_condition

WAYLOG = (sys.executable, "-m", "waylog.cli")
LINK = re.compile(r"live map +(http://\S+)")
READY = re.compile(r"waylog ready http=(\S+) mqtt=(\S+) kafka=(\S+)")


@dataclass
class Platform:
    """A running `waylog up`."""

    process: subprocess.Popen[str]
    data: Path
    http: str
    mqtt: str
    kafka: str
    link: str

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    @property
    def demo_token(self) -> str:
        return (self.data / "demo.token").read_text(encoding="utf-8").strip()

    def processes(self) -> dict[str, dict[str, Any]]:
        """Return the supervisor's processes: name -> pid, ready, restarts."""
        state: dict[str, dict[str, Any]] = json.loads((self.data / "processes.json").read_text())
        return state

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL; returns when the supervisor has restarted it."""
        before = self.processes()[name]
        os.kill(before["pid"], signal.SIGKILL)

        def back() -> bool:
            now = self.processes()[name]
            return bool(now["restarts"] > before["restarts"] and now["ready"])

        await_condition(back, 60, f"{name} back after kill -9")

    def waylog(self, *words: str, timeout_s: float = 120) -> str:
        """Run a `waylog` command against this platform; return its output."""
        done = subprocess.run(
            [*WAYLOG, *words], capture_output=True, text=True, timeout=timeout_s, check=False,
            env=os.environ | {"WAYLOG_DATA": str(self.data)},
        )  # fmt: skip
        assert done.returncode == 0, f"waylog {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def add_user(self, name: str) -> Path:
        """Add a user; return the file with the token."""
        token_file = self.data / f"{name}.token"
        token = self.waylog("user", "add", name, "--users", str(self.data / "users.db"))
        token_file.write_text(token, encoding="utf-8")
        return token_file

    def logs(self) -> str:
        """Return the last lines of every process's log, for a failed test."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:])
            for path in sorted((self.data / "logs").glob("*.log"))
        )

    def stop(self) -> int:
        """Stop the platform with SIGINT; return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        return self.process.returncode


def start_platform(
    data: Path,
    *options: str,
    timeout_s: float = 120,
    files: int | None = None,
    waylog: Sequence[str] = WAYLOG,
) -> Platform:
    """Start `waylog up` on ports that the system chooses; returns when it is ready.

    `files` limits the files that each of its processes may hold open; `waylog` is the program that
    is given the words of `waylog up`.
    """
    limit = () if files is None else ("sh", "-c", f'ulimit -n {files}; exec "$@"', "sh")
    listeners = ["--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0"]
    if "--bootstrap-servers" not in options:
        listeners += ["--kafka", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*limit, *waylog, "up", "--data", str(data), *listeners, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    printed: list[str] = []
    deadline = time.monotonic() + timeout_s
    for line in process.stdout:
        printed.append(line)
        if match := READY.search(line):
            link = LINK.search("".join(printed))
            http, mqtt, kafka = match.groups()
            return Platform(process, data, http, mqtt, kafka, link.group(1) if link else "")
        if time.monotonic() > deadline:
            break
    process.kill()
    process.communicate()
    pytest.fail("waylog up did not become ready:\n" + "".join(printed))
