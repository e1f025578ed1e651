"""One gateway, or several workers that share a port, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.consumers.running import Process
from tests.gateway.running import Gateway
from tests.ports import reserved_ports


class Workers(Gateway):
    """The gateway with the views, and `count` - 1 workers that only speak MQTT."""

    def __init__(self, folder: Path, bootstrap_servers: str, count: int, *options: str) -> None:
        self._count = count
        self._edges: list[Process] = []
        self.mqtt_port = reserved_ports(1)[0]
        super().__init__(folder, bootstrap_servers, *options)

    def start(self) -> None:
        """Start all processes, and wait until they are ready."""
        mqtt = f"127.0.0.1:{self.mqtt_port}"
        common = (
            *("gateway", "--bootstrap-servers", self.bootstrap_servers, "--http", self.http),
            *("--mqtt", mqtt, "--data", str(self.folder), *self._options),
        )
        relay = str(self.folder / "relay.sock")
        shared = ("--workers-share-port", "--relay", relay) if self._count > 1 else ()
        self.process = Process(*common, *shared)
        self.http = self.process.wait_for(r"gateway ready http=(\S+)").group(1)
        for _ in range(self._count - 1):
            self._edges.append(Process(*common, "--workers-share-port", "--edge", relay))
        for edge in self._edges:
            edge.wait_for(r"gateway ready")

    def close(self) -> None:
        """Stop all processes."""
        for edge in self._edges:
            edge.stop()
        super().close()


@contextmanager
def workers(folder: Path, bootstrap_servers: str, count: int, *options: str) -> Iterator[Workers]:
    """Run `count` workers, and stop them at the end."""
    running = Workers(folder, bootstrap_servers, count, *options)
    try:
        yield running
    finally:
        running.close()
