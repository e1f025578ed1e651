"""A platform for one load test: `waylog up` with a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO, Final

from waylog.cli import CommandError

_READY: Final = re.compile(r"waylog ready http=(\S+) mqtt=(\S+) kafka=(\S+)")
_START_S: Final = 180.0
_STOP_S: Final = 30.0
_LAST_LINES: Final = 15


class OwnPlatform:
    """Runs `waylog up --open` on free ports inside a `with` block.

    The data is deleted at the end, unless `keep` names a folder for it.
    """

    def __init__(
        self,
        *,
        brokers: int,
        gateway_workers: int,
        resolvers: int,
        history: bool,
        keep: Path | None = None,
    ) -> None:
        self.http = self.mqtt = self.bootstrap_servers = ""
        self._keep = keep
        self._data = keep or Path(tempfile.mkdtemp(prefix="waylog-load-"))
        self._words = [
            *("up", "--open", "--data", str(self._data)),
            *("--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--kafka", "127.0.0.1:0"),
            *("--brokers", str(brokers)),
            *("--gateway-workers", str(gateway_workers), "--resolvers", str(resolvers)),
            *(() if history else ("--no-history",)),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def pid(self) -> int:
        """The process id of the supervisor."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> OwnPlatform:
        self._data.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "waylog.cli", *self._words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        try:
            self._wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _wait_ready(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        ready = threading.Event()
        threading.Thread(target=self._read, args=(self._process.stdout, ready), daemon=True).start()
        if not ready.wait(_START_S) or not self.bootstrap_servers:
            lines = "\n  ".join(self._lines) or "it printed nothing"
            raise CommandError(f"`waylog up` did not become ready:\n  {lines}")

    def _read(self, output: IO[str], ready: threading.Event) -> None:
        for line in output:
            self._lines.append(line.rstrip())
            if match := _READY.search(line):
                self.http, self.mqtt, self.bootstrap_servers = match.groups()
                ready.set()
        ready.set()  # the process has ended

    def _stop(self) -> None:
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._keep is None:
            shutil.rmtree(self._data, ignore_errors=True)


def environment() -> dict[str, str]:
    """Return the environment of child processes, which find our packages even if not installed."""
    folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}


def run_waylog(*words: str) -> str:
    """Run a command to its end; return its output. Raises CommandError."""
    done = subprocess.run(
        [sys.executable, "-m", "waylog.cli", *words],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3600.0,
        check=False,
    )
    if done.returncode:
        raise CommandError(f"waylog {' '.join(words[:2])}: {done.stderr[-2000:]}")
    return done.stdout
