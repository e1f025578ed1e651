"""The track of one device over a year, through the gateway: how long an answer takes.

    python -m load_tests.benches.track_bench --devices 50 --fixes-a-day 200

A year of fixes goes through the log and the history job and is packed; a gateway answers out of
it. Each question is for another device, over all of the year, and takes what reading its answer
takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from load_tests.benches.broker_processes import WAYLOG, MeasuredBroker
from load_tests.benches.filling import fill
from load_tests.benches.measured_gateway import MeasuredGateway
from load_tests.own_platform import run_waylog
from waylog.history.history_reader import HistoryReader
from waylog.kafka.clients import ensure_topics
from waylog.messages import fix_id

_FIRST_MS: Final = 1_735_689_600_000  # 2025-01-01
_DAYS: Final = 365
_DAY_MS: Final = 86_400_000


def measure(devices: int, each: int, questions: int, folder: Path) -> dict[str, Any]:
    """Write a year of fixes, compact it, and query it."""
    history = folder / "history"
    with MeasuredBroker(WAYLOG, folder / "broker") as broker:
        servers = broker.bootstrap_servers
        ensure_topics(servers)
        fill(servers, _fixes(devices, each))
        run = ("history", "run", "--once", "--engine", "arrow", "--out", str(history))
        run_waylog(*run, "--bootstrap-servers", servers)
        run_waylog("history", "compact", "--all", "--out", str(history))
        with MeasuredGateway(servers, folder) as gateway:
            times, points = _ask(gateway, devices, questions)
    return {
        "name": "history: a device's track over a year",
        "files": len(HistoryReader(str(history)).files()),
        "points": round(points / questions),
        "p50_ms": round(sorted(times)[len(times) // 2], 1),
        "p99_ms": round(sorted(times)[int(len(times) * 0.99)], 1),
        "max_ms": round(max(times), 1),
        "passed": points == questions * _DAYS * each,
    }


def _ask(gateway: MeasuredGateway, devices: int, questions: int) -> tuple[list[float], int]:
    """Return the milliseconds of each query, and the number of points in all answers."""
    times, points = [], 0
    span = f"from={_FIRST_MS}&to={_FIRST_MS + _DAYS * _DAY_MS}"
    for number in range(questions + 1):
        name = _device(number % devices).replace("/", "%2F")
        began = time.perf_counter()
        answer = gateway.get(f"/v1/devices/{name}/track?{span}")
        if number:  # the first query loads the Parquet reader and is not counted
            times.append((time.perf_counter() - began) * 1000)
            points += (answer or b"").count(b'Z"')  # each time ends so
    return times, points


def _device(number: int) -> str:
    return f"bench/d{number:05d}"


def _fixes(devices: int, each: int) -> Iterator[tuple[bytes, bytes]]:
    for number in range(_DAYS * each * devices):
        index, step = number % devices, number // devices
        device, time_ms = _device(index), _FIRST_MS + step * (_DAY_MS // each)
        lat, lon = 47 + index * 1e-2 + number % 977 * 1e-6, 9 + index * 7e-3 + number % 1_009 * 1e-6
        value = (
            f'{{"id":"{fix_id(device, time_ms, lat, lon)}","device":"{device}","user":"bench",'
            f'"lat":{lat:.6f},"lon":{lon:.6f},"time":{time_ms},"received":{time_ms + 300},'
            f'"accuracy":{5 + number % 20}}}'
        )
        yield device.encode(), value.encode()


def main(argv: list[str] | None = None) -> int:
    """Measure once and print the figures as one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.track_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, default=50, help="that send (50)")
    parser.add_argument("--fixes-a-day", type=int, default=200, help="of each (200)")
    parser.add_argument("--questions", type=int, default=200, help="to the gateway (200)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="waylog-track-") as folder:
        result = measure(
            arguments.devices, arguments.fixes_a_day, arguments.questions, Path(folder)
        )
    print(json.dumps(result))
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
