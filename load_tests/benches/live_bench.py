"""Measures the live map of many devices: CPU of the gateway with pages, frames in a browser.

    python -m load_tests.benches.live_bench
        10,000 devices, 5,000 fixes a second over MQTT: without a page, with one, with 100
    python -m load_tests.benches.live_bench --devices 100000 --rate 20000 --via log
        fixes that are in the log already: what they cost the view, without MQTT
    python -m load_tests.benches.live_bench --browser 300
        and the page in Chromium for five minutes: frame times, memory (needs playwright)

The stages follow each other in rounds while the devices send, and a figure is the median of its
rounds. `events` is a page that gets every fix as JSON. The broker runs beside, and is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import aiohttp

from load_tests.benches.broker_processes import MeasuredBroker
from load_tests.benches.gateway_bench import fleets_of, outcomes_of
from load_tests.benches.gateway_servers import Gateways
from load_tests.benches.paced_fixes import Record, coming_fixes
from load_tests.benches.page_frames import measured_page
from load_tests.verify import Log
from waylog.cli import CommandError
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import LOCATION
from waylog.process.file_limit import raise_file_limit

#: The user of an open gateway's page, and of these devices.
_ANYBODY: Final = "anonymous"
#: Seconds from the first page of a stage until its CPU is counted.
_SETTLE_S: Final = 2.0
_WORLD: Final = {"type": "view", "bbox": [-180, -85, 180, 85], "zoom": 1.35}
#: A town and its surroundings, with some hundred devices out of 100,000.
_CITY: Final = {"type": "view", "bbox": [9.3, 47.2, 10.0, 47.6], "zoom": 10}
_EVENTS: Final = {"type": "subscribe", "topics": ["location"], "batch": True}

#: Number of pages, and what each of them asks for.
_STAGES: Final[Mapping[str, tuple[int, Mapping[str, Any]]]] = {
    "no_page": (0, {}),
    "world": (1, _WORLD),
    "city": (1, _CITY),
    "100_world": (100, _WORLD),
    "100_city": (100, _CITY),
    "events": (1, _EVENTS),
}


def main(argv: list[str] | None = None) -> int:
    """Run the stages; return 1 when something was not acknowledged."""
    parser = argparse.ArgumentParser(
        prog="python -m load_tests.benches.live_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--devices", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=5_000.0, help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--via", choices=["mqtt", "log"], default="mqtt")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each stage")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--stage", choices=[*_STAGES], action="append", help="may be repeated")
    parser.add_argument("--browser", type=float, metavar="S", help="seconds in Chromium after that")
    arguments = parser.parse_args(argv)
    raise_file_limit()
    stages = arguments.stage or [*_STAGES]
    with (
        tempfile.TemporaryDirectory(prefix="waylog-bench-") as folder,
        MeasuredBroker("Waylog", Path(folder) / "broker", flush=True) as broker,
        ExitStack() as stack,
    ):
        ensure_topics(broker.bootstrap_servers)
        log = Log(broker.bootstrap_servers)
        stack.callback(log.close)
        with Gateways(
            *(Path(folder), broker.bootstrap_servers, arguments.workers),
            *("--viewers-per-user", "1000"),
        ) as gateways:
            if arguments.via == "log":
                source = partial(_moving, arguments.devices)
                with coming_fixes(broker.bootstrap_servers, source, int(arguments.rate)):
                    _tell(gateways, log, stages, arguments)
                return 0
            fleets = stack.enter_context(
                fleets_of(gateways.mqtt_port, arguments.devices, arguments.rate, _ANYBODY)
            )
            stage_s = arguments.seconds + _SETTLE_S + 3.0
            total_s = arguments.rounds * len(stages) * stage_s + (arguments.browser or 0.0) + 30.0
            for fleet in fleets:
                fleet.pipe.send(total_s)
            ends = time.monotonic() + total_s
            _tell(gateways, log, stages, arguments)
            print(f"{max(0.0, ends - time.monotonic()):.0f} s left", file=sys.stderr)
            total, _ = outcomes_of(fleets)
    print(json.dumps({"sent": total["sent"], "acknowledged": total["acknowledged"]}))
    return 0 if total["sent"] == total["acknowledged"] else 1


def _tell(gateways: Gateways, log: Log, stages: list[str], arguments: argparse.Namespace) -> None:
    """Measure, and print what was found."""
    # Each device is known after its first fix.
    time.sleep(min(30.0, arguments.devices / arguments.rate + 2.0))
    for name, result in _measured(gateways, log, stages, arguments).items():
        print(json.dumps({"stage": name} | result), flush=True)
    if arguments.browser:
        url = f"http://127.0.0.1:{gateways.http_port}/"
        page = asyncio.run(measured_page(url, arguments.browser))
        print(json.dumps({"browser": page}), flush=True)


def _moving(devices: int, now_ms: Callable[[], int]) -> Iterator[Record]:
    """Make fixes of devices that move in Central Europe, without end; 20 m between two of one."""
    user = _ANYBODY.encode()
    for number in itertools.count():
        device, sequence = number % devices, number // devices
        spread = device * 2_654_435_761 % 2**32
        lat = 46 + spread % 8_000 / 1_000 + sequence * 2e-4
        lon = 6 + spread // 8_000 % 9_000 / 1_000 + sequence * 2e-4
        time_ms = now_ms()
        yield (
            b"%b/d%d" % (user, device),
            b'{"id":"b%d","device":"%b/d%d","user":"%b","lat":%.6f,"lon":%.6f,"time":%d,'
            b'"received":%d,"accuracy":8.0,"speed":9.5,"course":45.0}'
            % (number, user, device, user, lat, lon, time_ms, time_ms),
        )


def _measured(
    gateways: Gateways, log: Log, stages: list[str], arguments: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    used: dict[str, list[float]] = {name: [] for name in stages}
    rates: dict[str, list[float]] = {name: [] for name in stages}
    received: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(arguments.rounds):
        for name in stages:
            pages, asked = _STAGES[name]
            with _pages(gateways.http_port, pages, asked) as pipe:
                time.sleep(_SETTLE_S)
                pipe.send("begin")
                first, before, began = _fixes(log), gateways.cpu_s(), time.monotonic()
                time.sleep(arguments.seconds)
                cpu_s, lasted_s = gateways.cpu_s() - before, time.monotonic() - began
                pipe.send("end")
                fixes = _fixes(log) - first
                used[name].append(1e6 * cpu_s / max(1, fixes))
                rates[name].append(fixes / lasted_s)
                received[name].append(pipe.recv() / lasted_s)
    return {
        name: {
            "devices": arguments.devices,
            "rate": round(median(rates[name])),
            "cpu_us_per_fix": round(median(used[name]), 2),
            "rounds": [round(each, 2) for each in used[name]],
            "kib_s_per_page": round(median(received[name]) / 1024 / max(1, _STAGES[name][0]), 1),
        }
        for name in stages
    }


def _fixes(log: Log) -> int:
    """Return how many fixes the log has."""
    return sum(log.ends((LOCATION,)).values())


@contextmanager
def _pages(port: int, pages: int, asked: Mapping[str, Any]) -> Iterator[Connection]:
    """Connect pages in a process of their own; they count bytes from "begin" to "end"."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_look, args=(theirs, port, pages, asked), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise CommandError("the pages did not connect")
        ours.recv()
        yield ours
    finally:
        process.terminate()
        process.join()


def _look(pipe: Connection, port: int, pages: int, asked: Mapping[str, Any]) -> None:
    asyncio.run(_looking(pipe, port, pages, asked))


async def _looking(pipe: Connection, port: int, pages: int, asked: Mapping[str, Any]) -> None:
    received = 0

    async def page(session: aiohttp.ClientSession, ready: asyncio.Semaphore) -> None:
        nonlocal received
        async with session.ws_connect("/v1/ws?topics=location", max_msg_size=0) as connection:
            await connection.send_json({"type": "unsubscribe"})
            await connection.send_json(asked)
            ready.release()
            async for message in connection:
                received += len(message.data)

    ready = asyncio.Semaphore(0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        tasks = [asyncio.create_task(page(session, ready)) for _ in range(pages)]
        for _ in tasks:
            await ready.acquire()
        pipe.send("ready")
        await asyncio.to_thread(pipe.recv)
        received = 0
        await asyncio.to_thread(pipe.recv)
        pipe.send(received)
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
