"""The servers that `gateway_bench` measures: gateways, and other programs for comparison.

python -m load_tests.benches.gateway_servers 8000 run only the bare aiohttp server
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar, Self

import uvloop
from aiohttp import web

from load_tests.own_platform import environment
from load_tests.processor_time import read_process
from waylog.cli import CommandError
from waylog.network.free_ports import free_ports


class Server:
    """Processes that are measured together."""

    http_port: int
    mqtt_port: int
    processes: list[subprocess.Popen[bytes]]

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def cpu_s(self) -> float:
        """Return the processor time of all processes so far."""
        return sum(_cpu_s(process.pid) for process in self.processes)

    def memory_kib(self) -> int:
        """Return the anonymous memory of all processes, which they share with no others."""
        return sum(_anonymous_kib(process.pid) for process in self.processes)


class Gateways(Server):
    """One gateway, or several that share ports (the first as relay, the others as edge workers).

    It runs inside a `with` block.
    """

    def __init__(self, folder: Path, bootstrap_servers: str, workers: int, *options: str) -> None:
        """`options` are those of `waylog gateway`."""
        self._folder = folder
        self._common = [
            *(sys.executable, "-m", "waylog.cli", "gateway", "--open"),
            *("--bootstrap-servers", bootstrap_servers, "--data", str(folder)),
            *options,
        ]
        self._workers = workers
        self.processes = []
        self.http_port, self.mqtt_port = free_ports(2)

    def __enter__(self) -> Gateways:
        try:
            for number in range(self._workers):
                self.start(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, number: int) -> None:
        """Start a worker and wait until it serves."""
        self.launch(number)
        self.wait_until_ready(number)

    def launch(self, number: int) -> None:
        """Start or restart a worker."""
        words = ["--http", f"127.0.0.1:{self.http_port}", "--mqtt", f"127.0.0.1:{self.mqtt_port}"]
        if self._workers > 1:
            role = "--edge" if number else "--relay"
            words += ["--workers-share-port", role, str(self._folder / "relay.sock")]
        with self._log(number).open("wb") as output:
            process = subprocess.Popen(
                [*self._common, *words], stderr=output, stdout=output, env=environment()
            )
        if number < len(self.processes):
            self.processes[number] = process
        else:
            self.processes.append(process)

    def wait_until_ready(self, number: int) -> None:
        """Wait until a worker serves; raises CommandError."""
        log, process = self._log(number), self.processes[number]
        deadline = time.monotonic() + 60
        while b"gateway ready" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CommandError(f"a gateway did not start: {log.read_text()[-1000:]}")
            time.sleep(0.01)

    def _log(self, number: int) -> Path:
        return self._folder / f"gateway-{number}.log"


class Peer(Server):
    """Another program that is measured for comparison, in one process inside a `with` block."""

    protocol: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (port,) = free_ports(1)
        self.http_port = self.mqtt_port = port
        self.processes = []

    def __enter__(self) -> Self:
        self.processes = [
            subprocess.Popen(self._command(), stderr=subprocess.DEVNULL, env=environment())
        ]
        try:
            _await_listener(self.http_port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _configured(self, program: str, package: str, settings: str) -> tuple[str, str]:
        """Write the configuration; return the paths of the program and of that file.

        Raises CommandError where the program is not installed.
        """
        path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
        if path is None:
            raise CommandError(f"{program} is not installed (apt-get install {package})")
        config = self._folder / f"{program}.conf"
        config.write_text(settings)
        return path, str(config)


class Mosquitto(Peer):
    """The Mosquitto that is installed on this machine."""

    protocol = "mqtt"

    def _command(self) -> list[str]:
        settings = (
            f"listener {self.mqtt_port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
        )
        path, config = self._configured("mosquitto", "mosquitto", settings)
        return [path, "-c", config]


class BareAiohttp(Peer):
    """A minimal aiohttp server on uvloop that reads the body and answers 204."""

    protocol = "http"

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "load_tests.benches.gateway_servers", str(self.http_port)]


class Nginx(Peer):
    """The nginx that is installed on this machine, with one worker that answers 204."""

    protocol = "http"

    def _command(self) -> list[str]:
        settings = (
            f"daemon off; master_process off; pid {self._folder}/nginx.pid;"
            f"error_log {self._folder}/error.log;"
            "events { worker_connections 4096; }"
            "http { access_log off; keepalive_requests 100000000; "
            f"server {{ listen 127.0.0.1:{self.http_port}; location / {{ return 204; }} }} }}"
        )
        path, config = self._configured("nginx", "nginx-core", settings)
        return [path, "-p", str(self._folder), "-c", config]


def _await_listener(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _cpu_s(pid: int) -> float:
    process = read_process(pid)
    return 0.0 if process is None else process.cpu_s


def _anonymous_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    return int(match[1]) if match else 0


async def _no_content(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=204)


def main() -> None:
    """Run the bare aiohttp server."""
    uvloop.install()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", _no_content)
    port = int(sys.argv[1])
    web.run_app(application, host="127.0.0.1", port=port, access_log=None, print=None)


if __name__ == "__main__":
    main()
