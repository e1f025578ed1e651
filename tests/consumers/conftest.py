"""A broker and resolvers as processes of their own."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.running import Broker, Process
from waylog.kafka.clients import ensure_topics


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    try:
        ensure_topics(broker.address)
        yield broker
    finally:
        broker.process.stop()


@pytest.fixture
def start_resolver(broker: Broker) -> Iterator[Callable[..., Process]]:
    """Give a function that starts a resolver process; all are stopped at the end."""
    started: list[Process] = []

    def start(*words: Any) -> Process:
        process = Process("resolver", "--bootstrap-servers", broker.address, *words)
        started.append(process)
        process.wait_for("resolver ready")
        return process

    yield start
    for process in started:
        process.stop(signal.SIGKILL)


@pytest.fixture
def nominatim() -> Iterator[tuple[str, list[str]]]:
    """Run a fake Nominatim; give its address and the paths that were requested."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            body = json.dumps(
                {"lat": "0", "lon": "-30", "display_name": "Ocean, Earth", "address": {}}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}", requests
    server.shutdown()
    thread.join()
    server.server_close()
