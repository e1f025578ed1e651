"""A gateway's start on a long log: time until it serves, memory, CPU.

    python -m load_tests.benches.restart_bench --records 10000000 --devices 100000

The fixes are written to the log by this program. The gateway starts four times: without a snapshot
(it serves at once and reads the log beside that), after an orderly stop, after a kill, and after a
kill with fixes that no snapshot has. In the end a device that has been silent since the beginning
is asked for, and a fix of its is sent again.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import psutil

from load_tests.benches.broker_processes import WAYLOG, MeasuredBroker
from load_tests.benches.filling import fill
from load_tests.own_platform import environment
from waylog.cli import CommandError
from waylog.kafka.clients import ensure_topics

_START_MS: Final = int(time.time() * 1000) - 24 * 3600 * 1000
_LIMIT_S: Final = 1800.0
_BASIC: Final = "Basic YmVuY2g6eA=="


class _Gateway:
    """A gateway that is started several times, with one folder."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._log = folder / "gateway.log"
        self.views = folder / "views"
        self._words = [
            *(sys.executable, "-m", "waylog.cli", "gateway", "--bootstrap-servers", servers),
            *("--http", "127.0.0.1:0", "--mqtt", "none", "--open", "--data", str(folder)),
            *("--metrics-access", "public"),
        ]

    def start(self) -> dict[str, float]:
        """Start a process; return the time, CPU and memory that it took. Raises CommandError."""
        began = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._words, env=environment(), stdout=log, stderr=log)
        while not (found := re.search(r"gateway ready http=(\S+)", self._log.read_text())):
            if self._process.poll() is not None or time.monotonic() - began > _LIMIT_S:
                raise CommandError(f"the gateway did not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.01)
        self._http = found[1]
        return {"ready_s": round(time.monotonic() - began, 2)} | self.cost()

    def cost(self) -> dict[str, float]:
        """Return the CPU seconds and resident MiB so far."""
        process = psutil.Process(self._process.pid)
        used = process.cpu_times()
        return {
            "cpu_s": round(used.user + used.system, 2),
            "rss_mib": round(process.memory_info().rss / 2**20),
        }

    def wait_until_read(self) -> dict[str, float]:
        """Wait until the whole log is read; return the time, CPU and memory that it took."""
        began = time.monotonic()
        while self.metric("view_unread_records"):
            if time.monotonic() - began > _LIMIT_S:
                raise CommandError("the log is not read to its beginning")
            time.sleep(0.2)
        return {"read_s": round(time.monotonic() - began, 1)} | self.cost()

    def metric(self, name: str) -> float:
        """Return one of the gateway's gauges."""
        text = self.ask("GET", "/metrics")[1].decode()
        found = re.search(rf"^waylog_gateway_{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise CommandError(f"no {name} in /metrics")
        return float(found[1])

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request; return the status and body of the answer."""
        connection = HTTPConnection(self._http, timeout=60)
        try:
            connection.request(method, path, body, {"Authorization": _BASIC})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stop(self, number: signal.Signals) -> float:
        """Send a signal; return the seconds until the process has ended."""
        began = time.monotonic()
        self._process.send_signal(number)
        self._process.wait(60)
        return round(time.monotonic() - began, 2)


def measure(records: int, devices: int, folder: Path) -> dict[str, Any]:
    """Fill a log, and start a gateway on it repeatedly."""
    figures: dict[str, Any] = {"records": records, "devices": devices}
    with MeasuredBroker(WAYLOG, folder / "broker") as broker:
        servers = broker.bootstrap_servers
        ensure_topics(servers)
        fill(servers, _fixes(0, records, devices))
        gateway = _Gateway(servers, folder)
        figures["first start"] = gateway.start()
        figures["first start"] |= gateway.wait_until_read()
        figures["first start"]["stop_s"] = gateway.stop(signal.SIGTERM)
        figures["disk_mib"] = round(
            sum(path.stat().st_size for path in gateway.views.rglob("*")) / 2**20, 1
        )
        figures["after a stop"] = gateway.start()
        gateway.stop(signal.SIGKILL)
        figures["after a kill"] = gateway.start()
        gateway.stop(signal.SIGKILL)
        fill(servers, _fixes(records, 400_000, devices))
        figures["after a kill, 400,000 behind"] = gateway.start()
        figures["repetition"] = _repeat(gateway, devices)
        gateway.stop(signal.SIGTERM)
    return figures


def _repeat(gateway: _Gateway, devices: int) -> dict[str, Any]:
    """Query the device that sent only the first fix, and send that fix again."""
    silent = json.dumps(_fix(0, devices)).encode()
    status, found = gateway.ask("GET", "/v1/devices/bench%2Fsilent")
    answered, _ = gateway.ask("POST", "/v1/positions", silent)
    began = time.perf_counter()
    for _ in range(1000):
        gateway.ask("POST", "/v1/positions", silent)
    return {
        "silent_device": status,
        "newest": json.loads(found).get("time") == _START_MS,
        "answered": answered,
        "repeats_counted": gateway.metric("repeated_total"),
        "repeat_ms": round((time.perf_counter() - began), 2),
    }


def _fix(number: int, devices: int) -> dict[str, Any]:
    device = f"d{number % devices}" if number else "silent"
    return {
        "id": f"{number:026d}",
        "device": f"bench/{device}",
        "user": "bench",
        "lat": 47.0 + number % 997 / 1000,
        "lon": 9.0 + number % 991 / 1000,
        "time": _START_MS + number,
        "received": _START_MS + number,
        "accuracy": 5,
        "source": "positions",
    }


def _fixes(first: int, count: int, devices: int) -> Iterator[tuple[bytes, bytes]]:
    form = (
        '{"id":"%026d","device":"bench/%s","user":"bench","lat":%.3f,"lon":%.3f,"time":%d,'
        '"received":%d,"accuracy":5,"source":"positions"}'
    )
    for number in range(first, first + count):
        device = f"d{number % devices}" if number else "silent"
        time_ms = _START_MS + number
        lat, lon = 47.0 + number % 997 / 1000, 9.0 + number % 991 / 1000
        yield (
            f"bench/{device}".encode(),
            (form % (number, device, lat, lon, time_ms, time_ms)).encode(),
        )


def main() -> int:
    """Run the benchmark and print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000_000, metavar="N")
    parser.add_argument("--devices", type=int, default=100_000, metavar="N")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waylog-restart-") as name:
        print(json.dumps(measure(arguments.records, arguments.devices, Path(name)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
