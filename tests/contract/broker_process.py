"""A broker in a process of its own, as `waylog up` starts it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from waylog.config import save_properties

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 120


class BrokerProcess:
    """`waylog broker` on a port that the system chooses; restarts keep the port."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.properties = {
            "node.id": "0",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder / "logs"),
            "auto.create.topics.enable": "false",
            "log.flush.interval.messages": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "500",
        } | {name.replace("_", "."): value for name, value in properties.items()}
        self.bootstrap_servers = ""
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> str:
        """Start the broker; return the bootstrap servers once it serves."""
        config = self.folder / "server.properties"
        save_properties(config, self.properties)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.bootstrap_servers = ""
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(START_TIMEOUT_S) or not self.bootstrap_servers:
            self.kill()
            raise AssertionError("the broker did not start:\n" + "".join(self.output))
        self.properties["listeners"] = f"PLAINTEXT://{self.bootstrap_servers}"
        return self.bootstrap_servers

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.output.append(line)
            match = re.search(r"serves (\S+),", line)
            if match:
                self.bootstrap_servers = match[1]
                ready.set()
        ready.set()

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the process cleanly; return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        # Hundreds of topics on a busy machine take a while to flush.
        status = process.wait(60)
        assert self._reader is not None
        self._reader.join(5)
        assert process.stderr is not None
        process.stderr.close()
        return status
