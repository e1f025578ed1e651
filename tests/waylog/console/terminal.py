"""`waylog` commands as a person at a terminal types them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


class Terminal:
    """Runs `waylog` commands against one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def run(self, *words: str, stdin: str = "", status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "waylog.cli", *words, "--bootstrap-servers",
             self.bootstrap_servers],
            input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that keeps running."""
        return subprocess.Popen(
            [sys.executable, "-m", "waylog.cli", *words, "--bootstrap-servers",
             self.bootstrap_servers],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def rows(self, *words: str) -> list[dict[str, Any]]:
        printed = self.run(*words, "--json")
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
