"""`waylog` commands as a person at a terminal types them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

from tests.forked_commands import ForkedCommands

#: The commands that are tried, and what they import later.
MODULES: Final = (
    "waylog.console.topics",
    "waylog.console.produce",
    "waylog.console.consume",
    "waylog.console.offsets",
    "waylog.console.groups",
    "waylog.console.cluster",
    "waylog.console.dead_letters",
    "waylog.kafka.reach",
)


class Terminal:
    """Runs `waylog` commands against one broker."""

    def __init__(self, bootstrap_servers: str, commands: ForkedCommands) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._commands = commands

    def run(self, *words: str, stdin: str = "", status: int = 0) -> str:
        done = self._commands.run(
            *words, "--bootstrap-servers", self.bootstrap_servers, stdin=stdin
        )
        assert done.status == status, done.stderr
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
