"""Measures the gateway's ways in: CPU of its processes for a request, a message, a fix.

    python -m load_tests.benches.gateway_bench
        HTTP, WebSocket, MQTT with 10,000
    python -m load_tests.benches.gateway_bench --only mqtt-100000
        six workers, a minute
    python -m load_tests.benches.gateway_bench --only mqtt-10000 --peer mosquitto
        Mosquitto beside it
    python -m load_tests.benches.gateway_bench --only http-1 --peer aiohttp --peer nginx
    python -m load_tests.benches.gateway_bench --only storm
        workers killed under load

One broker and the gateway run, nothing else: no resolver, no history. Everything that a fix costs
the gateway is in the figures, the view that reads it back included; the broker is not. HTTP needs
`wrk`. Run it on a quiet machine; CPU holds up better on a busy one than rates and latencies do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Final

from load_tests.benches.broker_processes import MeasuredBroker
from load_tests.benches.gateway_servers import BareAiohttp, Gateways, Mosquitto, Nginx, Peer, Server
from load_tests.benches.websocket_clients import acknowledged_messages
from load_tests.latency import Pairs, merged, percentile_ms
from load_tests.verify import Log
from waylog.cli import CommandError
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import LOCATION
from waylog.process.file_limit import raise_file_limit

_SETTLE_S: Final = 1.0
_FLEET_MAX: Final = 16_700
_CONNECT_S: Final = 120.0
#: Each connection waits for the log's sync: with a hundred, a gateway would be almost idle.
_HTTP_CONNECTIONS: Final = 400

_PEERS: Final[dict[str, type[Peer]]] = {
    "mosquitto": Mosquitto,
    "aiohttp": BareAiohttp,
    "nginx": Nginx,
}

_WRK_SCRIPT: Final = """
local count = {count}
local head = '{{"device":"d%d","lat":47.14%d,"lon":9.52%d,"accuracy":5,"battery":80,"time":%d}}'
local thread_number, time = 0, 0
function setup(thread) thread:set("number", thread_number); thread_number = thread_number + 1 end
function init() time = {start} + number * 100000000 end
function request()
  local items = {{}}
  for index = 1, count do
    time = time + 1
    items[index] = string.format(head, time % 499, time % 1000, time % 997, time)
  end
  local body = count == 1 and items[1] or "[" .. table.concat(items, ",") .. "]"
  return wrk.format("POST", "/v1/positions?u=bench", nil, body)
end
"""


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks; return 1 when something was not acknowledged."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.gateway_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ["http-1", "http-50", "websocket", "mqtt-10000", "mqtt-100000", "storm"]
    parser.add_argument("--only", choices=names, action="append", help="may be repeated")
    parser.add_argument("--seconds", type=float, default=5.0, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=20_000.0, help="MQTT fixes a second")
    parser.add_argument("--workers", type=int, help="default: 1, and 6 for 100,000 connections")
    parser.add_argument(
        "--connections", type=int, help="in place of the name's, for `storm` too (HTTP: 400)"
    )
    parser.add_argument(
        "--peer", choices=[*_PEERS], action="append", default=[], help="measured as well; repeated"
    )
    parser.add_argument("--pause", type=float, default=0.0, metavar="S", help="before the load")
    arguments = parser.parse_args(argv)
    raise_file_limit()
    passed = True
    for name in arguments.only or names[:4]:
        for peer in (None, *arguments.peer):
            if peer is not None and not name.startswith(_PEERS[peer].protocol):
                continue
            with tempfile.TemporaryDirectory(prefix="waylog-bench-") as folder:
                result = _run(name, peer, arguments, Path(folder))
            passed = passed and bool(result.get("passed", True))
            print(json.dumps({"name": name, "server": peer or "waylog"} | result), flush=True)
    return 0 if passed else 1


def _run(
    name: str, peer: str | None, arguments: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    if peer is not None:
        with _PEERS[peer](folder) as server:
            if name.startswith("http"):
                return _http(server, name, arguments)
            return _mqtt(server, _connections(name, arguments), arguments)
    workers = arguments.workers or (6 if name in {"mqtt-100000", "storm"} else 1)
    with MeasuredBroker("Waylog", folder / "broker", flush=True) as broker:
        ensure_topics(broker.bootstrap_servers)
        with Gateways(folder, broker.bootstrap_servers, workers) as gateways:
            pids = [process.pid for process in gateways.processes]
            print(f"{name}: gateway processes {pids}", file=sys.stderr, flush=True)
            time.sleep(arguments.pause)
            if name.startswith("http"):
                return _http(gateways, name, arguments)
            if name == "websocket":
                return asyncio.run(_websocket(gateways, arguments.seconds))
            connections = _connections(name, arguments)
            if name == "storm":
                result = _storm(gateways, connections, arguments)
                return result | _stored(broker.bootstrap_servers, result)
            return _mqtt(gateways, connections, arguments)


def _connections(name: str, arguments: argparse.Namespace) -> int:
    number = name.partition("-")[2]
    return int(arguments.connections or number or 100_000)


# --- HTTP ---------------------------------------------------------------------------------------


def _http(server: Server, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    fixes, seconds = int(name.partition("-")[2]), arguments.seconds
    connections = arguments.connections or _HTTP_CONNECTIONS
    if shutil.which("wrk") is None:
        raise CommandError("wrk is not installed (apt-get install wrk)")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_WRK_SCRIPT.format(count=fixes, start=int(time.time() * 1000) - 10**9))
        script.flush()
        url = f"http://127.0.0.1:{server.http_port}/"
        before = server.cpu_s()
        words = [
            "-t1",
            f"-c{connections}",
            f"-d{seconds:.0f}s",
            "--latency",
            "-s",
            script.name,
            url,
        ]
        done = subprocess.run(["wrk", *words], capture_output=True, text=True, check=True)
    time.sleep(_SETTLE_S)
    used = server.cpu_s() - before
    requests = int(re.findall(r"(\d+) requests in", done.stdout)[0])
    bad = re.findall(r"Non-2xx.*: (\d+)", done.stdout)
    return {
        "requests": requests,
        "requests_s": round(requests / seconds),
        "cpu_us_per_request": round(used * 1e6 / requests, 1),
        "cpu_us_per_fix": round(used * 1e6 / requests / fixes, 2),
        "passed": not bad,
    }


# --- WebSocket ----------------------------------------------------------------------------------


async def _websocket(gateways: Gateways, seconds: float) -> dict[str, Any]:
    connections, window = 100, 16
    until = time.monotonic() + seconds
    before = gateways.cpu_s()
    counts = await asyncio.gather(
        *(
            acknowledged_messages(gateways.http_port, number, window, until)
            for number in range(connections)
        )
    )
    await asyncio.sleep(_SETTLE_S)
    used = gateways.cpu_s() - before
    messages = sum(counts)
    return {
        "messages": messages,
        "messages_s": round(messages / seconds),
        "cpu_us_per_message": round(used * 1e6 / messages, 1),
    }


# --- MQTT ---------------------------------------------------------------------------------------


@dataclass
class Fleet:
    """A process with many devices."""

    process: SpawnProcess
    pipe: Any
    devices: int


def _drive(pipe: Any, port: int, devices: int, first: int, rate: float, user: str) -> None:
    """Run a fleet's process: report when all devices are connected, then send on request."""
    from load_tests.fleet import Fleet as DeviceFleet

    raise_file_limit()
    fleet = DeviceFleet(
        "127.0.0.1",
        port,
        devices=devices,
        rate=rate,
        run=f"r{os.getpid():08d}",
        user=user,
        first_device=first,
        subscribe=False,
        connects_per_s=3000.0,
    )
    while not pipe.poll():
        fleet.step()
        if fleet.ready == devices:
            pipe.send("ready")
            break
    while not pipe.poll():
        fleet.step()
    seconds = pipe.recv()
    fleet.begin()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        fleet.step()
        if pipe.poll():
            # The parent asks for the number of connected devices, which the storm measures.
            pipe.recv()
            pipe.send(fleet.ready)
    fleet.end()
    deadline = time.monotonic() + 60
    while not fleet.settled and time.monotonic() < deadline:
        fleet.step()
    counts = {
        "sent": fleet.sent,
        "acknowledged": fleet.acknowledged,
        "resent": fleet.resent,
        "connects": fleet.connects,
        "connect_failures": fleet.connect_failures,
        "disconnects": fleet.disconnects,
        "refused": fleet.refused,
        "away": devices - fleet.ready,
    }
    pipe.send((counts, fleet.take_acknowledgement_latencies()))
    pipe.recv()
    fleet.close()


@contextlib.contextmanager
def fleets_of(
    port: int, connections: int, rate: float, user: str = "load"
) -> Iterator[list[Fleet]]:
    """Start fleets and yield them when all devices are connected."""
    context = multiprocessing.get_context("spawn")
    count = -(-connections // _FLEET_MAX)
    fleets = []
    first = 0
    for number in range(count):
        devices = connections // count + (number < connections % count)
        ours, theirs = context.Pipe()
        share = rate * devices / connections
        process = context.Process(target=_drive, args=(theirs, port, devices, first, share, user))
        process.start()
        fleets.append(Fleet(process, ours, devices))
        first += devices
    try:
        for fleet in fleets:
            if not fleet.pipe.poll(_CONNECT_S):
                raise CommandError("not all devices were connected in time")
            fleet.pipe.recv()
        yield fleets
    finally:
        for fleet in fleets:
            fleet.process.terminate()
            fleet.process.join(10)


def outcomes_of(fleets: list[Fleet]) -> tuple[Counter[str], Pairs]:
    """Add up the outcomes of all fleets."""
    total: Counter[str] = Counter()
    several = []
    for fleet in fleets:
        while isinstance(answer := fleet.pipe.recv(), int):
            pass
        counts, latencies = answer
        total.update(counts)
        several.append(latencies)
        fleet.pipe.send("end")
    return total, merged(several)


def _mqtt(server: Server, connections: int, arguments: argparse.Namespace) -> dict[str, Any]:
    empty_kib, idle_cpu_s = server.memory_kib(), server.cpu_s()
    began = time.monotonic()
    with fleets_of(server.mqtt_port, connections, arguments.rate) as fleets:
        connected_s = time.monotonic() - began
        connect_cpu_s = server.cpu_s() - idle_cpu_s
        time.sleep(_SETTLE_S)
        connected_kib = server.memory_kib()
        before = server.cpu_s()
        for fleet in fleets:
            fleet.pipe.send(arguments.seconds)
        total, latencies = outcomes_of(fleets)
        time.sleep(_SETTLE_S)
        used = server.cpu_s() - before
    return {
        "connections": connections,
        "connected_in_s": round(connected_s, 1),
        "cpu_us_per_connect": round(connect_cpu_s * 1e6 / connections, 1),
        "kib_per_connection": round((connected_kib - empty_kib) / connections, 2),
        "cpu_us_per_fix": round(used * 1e6 / max(1, total["acknowledged"]), 2),
        "rate": round(total["acknowledged"] / arguments.seconds),
        "sent": total["sent"],
        "acknowledged": total["acknowledged"],
        "ack_ms": {
            name: percentile_ms(latencies, percent)
            for name, percent in (("p50", 50), ("p99", 99), ("p99.9", 99.9))
        },
        "passed": total["sent"] == total["acknowledged"],
    }


def _stored(bootstrap_servers: str, result: dict[str, Any]) -> dict[str, Any]:
    """Count the fixes in the log, and those that are there twice."""
    log = Log(bootstrap_servers)
    ends = log.ends((LOCATION,))
    records, ids = 0, set()
    for value in log.records(LOCATION, dict.fromkeys(ends, 0), ends):
        records += 1
        ids.add(value[7 : value.index(b'"', 7)])
    log.close()
    lost = result["acknowledged"] - len(ids)
    return {
        "stored": len(ids),
        "doubled": records - len(ids),
        "passed": result["passed"] and lost <= 0,
    }


def _storm(gateways: Gateways, connections: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Kill all workers with SIGKILL under load; measure the recovery and check the log."""
    seconds = max(arguments.seconds, 40.0)
    with fleets_of(gateways.mqtt_port, connections, arguments.rate) as fleets:
        for fleet in fleets:
            fleet.pipe.send(seconds)
        until = time.monotonic() + seconds
        time.sleep(5)
        killed = time.monotonic()
        for process in gateways.processes:
            process.kill()
        for process in gateways.processes:
            process.wait()
        # Start all at once, as their supervisor does.
        for number in range(len(gateways.processes)):
            gateways.launch(number)
        for number in range(len(gateways.processes)):
            gateways.wait_until_ready(number)
        started = time.monotonic()
        back = None
        while time.monotonic() < until - 1 and back is None:
            time.sleep(0.25)
            for fleet in fleets:
                fleet.pipe.send("?")
            if sum(fleet.pipe.recv() for fleet in fleets) == connections:
                back = time.monotonic()
        total, latencies = outcomes_of(fleets)
    return {
        "connections": connections,
        "workers_back_s": round(started - killed, 1),
        "all_back_s": None if back is None else round(back - killed, 1),
        **total,
        "ack_ms": {
            name: percentile_ms(latencies, percent)
            for name, percent in (("p50", 50), ("p99", 99), ("p99.9", 99.9))
        },
        "passed": back is not None and total["sent"] == total["acknowledged"],
    }


if __name__ == "__main__":
    sys.exit(main())
